//! A touch that fails is a signal; the same through a pin is a value. Cuts a file while it is mapped, and asks
//! for a page that is gone.
//!
//! `cargo run --release --example errors_as_values`

use softfault::Engine;
use std::io::Write as _;

fn main() -> std::io::Result<()> {
    let path = std::env::temp_dir().join(format!("softfault-errors-{}", std::process::id()));
    let mut file = std::fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    file.write_all(&vec![7; 1 << 20])?;

    let engine = Engine::builder().memory(16 << 20).build()?;
    // SAFETY: nobody else writes to the file: it has no name.
    let map = unsafe { engine.map(&file) }?;
    let header = map.pin(0..4096).expect("it is there");
    println!("the first byte is {}", header[0]);
    drop(header);

    engine.truncate(&file, 4096)?;
    match map.pin(512 << 10..513 << 10) {
        Ok(_) => println!("the page is there, which it should not be"),
        Err(error) => println!("a page behind the end: {error}"),
    }
    let mut buffer = [0; 16];
    match map.read_at(&mut buffer, 900 << 10) {
        Ok(bytes) => println!("{bytes} bytes of it, which there should not be"),
        Err(error) => println!("a copy of bytes behind the end: {error}"),
    }
    Ok(())
}
