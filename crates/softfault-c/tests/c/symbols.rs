//! What the shared library shows of itself.

use crate::installed::installed;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol};
use std::collections::BTreeSet;
use std::fs;

const LISTED: &str = include_str!("../../exported-symbols.txt");
const HEADER: &str = include_str!("../../include/softfault.h");

/// One a line; lines with # are words.
fn listed() -> BTreeSet<&'static str> {
    let lines = LISTED.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

#[test]
fn the_library_exports_what_is_listed() {
    let bytes = fs::read(installed().lib().join("libsoftfault.so")).unwrap();
    let library = ElfFile64::<object::Endianness>::parse(&bytes[..]).unwrap();
    let exported: BTreeSet<&str> = library
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.is_global())
        .map(|symbol| symbol.name().unwrap())
        .collect();
    assert_eq!(
        exported,
        listed(),
        "exported-symbols.txt has what is exported"
    );
}

#[test]
fn the_header_declares_what_is_listed() {
    let mut declared = BTreeSet::new();
    for line in HEADER
        .lines()
        .filter(|line| !line.trim_start().starts_with('*'))
    {
        let Some((before, _)) = line.split_once('(') else {
            continue;
        };
        let name = before.rsplit([' ', '*']).next().unwrap_or("");
        if name.starts_with("softfault_") {
            declared.insert(name);
        }
    }
    assert_eq!(declared, listed());
}

#[test]
fn the_name_has_the_abis_version() {
    let bytes = fs::read(installed().lib().join("libsoftfault.so")).unwrap();
    let library = ElfFile64::<object::Endianness>::parse(&bytes[..]).unwrap();
    let endian = library.endian();
    let table = library.elf_section_table();
    let (entries, link) = table.dynamic(endian, &bytes[..]).unwrap().unwrap();
    let strings = table.strings(endian, &bytes[..], link).unwrap();
    use object::read::elf::Dyn;
    let of = |tag: u32| {
        let found = entries
            .iter()
            .find(|entry| entry.tag32(endian) == Some(tag));
        found.map(|entry| entry.d_val(endian))
    };
    let at = of(object::elf::DT_SONAME).expect("a soname") as u32;
    let version = softfault_c::version::SOFTFAULT_ABI_VERSION;
    let expected = format!("libsoftfault.so.{version}");
    assert_eq!(strings.get(at).unwrap(), expected.as_bytes());
    // It is never unloaded: its handlers and threads stay.
    let flags = of(object::elf::DT_FLAGS_1).unwrap_or(0);
    assert_ne!(flags & u64::from(object::elf::DF_1_NODELETE), 0);
}
