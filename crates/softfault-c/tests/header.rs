//! The header is the one made from the source.

use std::path::Path;

/// Writes the header anew where this is set, instead of comparing it.
const WRITE: &str = "SOFTFAULT_WRITE_HEADER";

#[test]
fn the_header_is_that_of_the_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_crate(root)
        .generate()
        .unwrap();
    let mut written = Vec::new();
    bindings.write(&mut written);
    let written = for_c(&String::from_utf8(written).unwrap());
    let path = root.join("include/softfault.h");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    let is = std::fs::read_to_string(&path).unwrap();
    assert!(
        is == written,
        "{} is not as the source has it: {WRITE}=1 cargo test -p softfault-c --test header writes it",
        path.display()
    );
}

/// Without the parts of a comment for Rust: the caller's promises stand in the text above, too. And with comments that C89 has.
fn for_c(header: &str) -> String {
    let mut lines = Vec::new();
    let mut is_rusts = false;
    for line in header.lines() {
        let line = line.trim_end();
        let said = line.trim_start();
        is_rusts = match said {
            "* # Safety" => true,
            "*/" => false,
            _ => is_rusts,
        };
        if is_rusts {
            continue;
        }
        // The empty line before it.
        if said == "*/" && lines.last().is_some_and(|last| last == " *") {
            lines.pop();
        }
        lines.push(match line.split_once("//") {
            Some((code, name)) if code.starts_with("#endif") => {
                format!("{} /*{name} */", code.trim_end())
            }
            _ => line.to_owned(),
        });
    }
    lines.join("\n") + "\n"
}
