//! The symbols that the shared library exports.

use crate::installed::installed;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol, SymbolSection};
use std::collections::BTreeSet;
use std::fs;

const LISTED: &str = include_str!("../../libsoftfault.map");
const HEADER: &str = include_str!("../../include/softfault.h");

/// The version script as a list: names, each with the node that it is in.
fn listed() -> BTreeSet<(&'static str, &'static str)> {
    let (mut listed, mut node) = (BTreeSet::new(), "");
    let (_, script) = LISTED.split_once("*/").expect("it begins with words");
    for line in script.lines().map(str::trim) {
        if let Some(name) = line.strip_suffix('{') {
            node = name.trim();
        } else if let Some(name) = line.strip_suffix(';')
            && !name.starts_with('}')
            && name != "*"
        {
            assert!(listed.insert((name, node)), "{name} is listed twice");
        }
    }
    listed
}

fn names() -> BTreeSet<&'static str> {
    let listed = listed().into_iter();
    let names: BTreeSet<_> = listed.map(|(name, _)| name).collect();
    assert!(names.contains("softfault_mmap"));
    names
}

#[test]
fn the_library_exports_the_listed_functions() {
    let bytes = fs::read(installed().lib().join("libsoftfault.so")).unwrap();
    let library = ElfFile64::<object::Endianness>::parse(&bytes[..]).unwrap();
    let endian = library.endian();
    let versions = library.elf_section_table().versions(endian, &bytes[..]);
    let versions = versions.unwrap().expect("symbols have versions");
    let symbols = library.dynamic_symbols();
    // Each node has a symbol of its own name, too, with the value 0.
    let exported = symbols.filter(|symbol| {
        let is_node = symbol.section() == SymbolSection::Absolute;
        symbol.is_definition() && symbol.is_global() && !is_node
    });
    let exported: BTreeSet<(&str, &str)> = exported
        .map(|symbol| {
            let index = versions.version_index(endian, symbol.index());
            assert!(!index.is_hidden(), "a program gets it when it is linked");
            let version = versions.version(index).unwrap();
            let version = version.expect("a version of ours").name();
            let version = core::str::from_utf8(version).unwrap();
            (symbol.name().unwrap(), version)
        })
        .collect();
    assert_eq!(
        exported,
        listed(),
        "libsoftfault.map has the exported symbols"
    );
}

/// A function that is in no node of the release before is in the node that names the release that brought it.
#[test]
fn nodes_are_of_releases() {
    let nodes: BTreeSet<&str> = listed().into_iter().map(|(_, node)| node).collect();
    let release = env!("CARGO_PKG_VERSION").rsplit_once('.').unwrap().0;
    assert!(nodes.contains("SOFTFAULT_0.1"), "{nodes:?}");
    for node in nodes {
        let number = node.strip_prefix("SOFTFAULT_").expect("its name");
        let parts = |number: &str| -> Vec<u32> {
            number
                .split('.')
                .map(|part| part.parse().unwrap())
                .collect()
        };
        assert!(parts(number) <= parts(release), "{node} is not released");
    }
}

#[test]
fn the_header_declares_the_listed_functions() {
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
    assert_eq!(declared, names());
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
