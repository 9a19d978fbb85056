//! The symbols that the shared library exports.

use crate::installed::installed;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol, SymbolSection};
use std::collections::BTreeSet;
use std::fs;

const LISTED: &str = include_str!("../../libsoftfault.map");
const HEADER: &str = include_str!("../../include/softfault.h");

/// The nodes of releases, the last one last. A release that has a node of its own adds it.
const RELEASED: [(&str, &[&str]); 1] = [(
    "SOFTFAULT_0.1",
    &[
        "softfault_abi_version",
        "softfault_copy_in",
        "softfault_copy_out",
        "softfault_engine_free",
        "softfault_engine_new",
        "softfault_error",
        "softfault_fault_in",
        "softfault_fault_in_many",
        "softfault_madvise",
        "softfault_mlock",
        "softfault_mmap",
        "softfault_mmap_ex",
        "softfault_mprotect",
        "softfault_mremap",
        "softfault_msync",
        "softfault_munlock",
        "softfault_munmap",
        "softfault_pin",
        "softfault_prefetch",
        "softfault_read_from",
        "softfault_set_memory",
        "softfault_stats",
        "softfault_unpin",
        "softfault_version",
        "softfault_write_to",
    ],
)];

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

/// A node that a release has brought stays as it was: a program that was linked with a later library would ask an earlier one of
/// the same node for a function that it does not have. A function that comes after a release is in the node of the next one.
#[test]
fn nodes_are_of_releases() {
    let listed = listed();
    let numbers = |node: &str| -> Vec<u32> {
        let number = node.strip_prefix("SOFTFAULT_").expect("its name");
        let parts = number.split('.').map(|part| part.parse().unwrap());
        parts.collect()
    };
    for (node, names) in RELEASED {
        let found = listed.iter().filter(|(_, of)| *of == node);
        let found: BTreeSet<_> = found.map(|&(name, _)| name).collect();
        let names: BTreeSet<_> = names.iter().copied().collect();
        assert_eq!(found, names, "{node} is released");
    }
    let now = numbers(concat!("SOFTFAULT_", env!("CARGO_PKG_VERSION")));
    let (last, _) = RELEASED.last().expect("the first release");
    for (_, node) in &listed {
        let is_released = RELEASED.iter().any(|(released, _)| released == node);
        let is_next = numbers(node) > numbers(last) && numbers(node) <= now;
        assert!(is_released || is_next, "{node} is of no release");
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
