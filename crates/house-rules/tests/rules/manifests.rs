//! The metadata of a published crate.

use crate::source::Sources;
use crate::{Broken, Rule};

pub const RULE: Rule = Rule {
    name: "published-crates-have-metadata",
    why: "cargo packages a crate only if it has a description and a licence, and only if all that it needs \
          has a version that a registry can have",
    check,
    bad: &[
        &[("crates/a/Cargo.toml", "[package]\nname = \"a\"")],
        &[("crates/a/Cargo.toml", without("description"))],
        &[("crates/a/Cargo.toml", without("license"))],
        &[("crates/a/Cargo.toml", without("readme"))],
        &[("crates/a/Cargo.toml", without("rust-version"))],
        // The workspace has an address, and the crate does not give it.
        &[
            ("Cargo.toml", "[workspace.package]\nrepository = \"x\""),
            ("crates/a/Cargo.toml", WHOLE),
        ],
        // A licence whose text is not in the package.
        &[("LICENSE-MIT", ""), ("crates/a/Cargo.toml", WHOLE)],
        &[("crates/a/Cargo.toml", NEEDS_A_PATH)],
        &[
            (
                "Cargo.toml",
                "[workspace.dependencies]\nb = { path = \"crates/b\" }",
            ),
            ("crates/a/Cargo.toml", NEEDS_OF_WORKSPACE),
        ],
        // It has a version, and is not published.
        &[
            (
                "Cargo.toml",
                "[workspace.dependencies]\nb = { path = \"crates/b\", version = \"1\" }",
            ),
            ("crates/a/Cargo.toml", NEEDS_OF_WORKSPACE),
            (
                "crates/b/Cargo.toml",
                "[package]\nname = \"b\"\npublish = false",
            ),
        ],
        // The library has to be published.
        &[(
            "crates/softfault/Cargo.toml",
            "[package]\nname = \"softfault\"\npublish = false",
        )],
    ],
    good: &[
        (
            "Cargo.toml",
            "[workspace.dependencies]\nb = { path = \"crates/b\", version = \"1\" }\nserde = \"1\"",
        ),
        ("crates/a/Cargo.toml", NEEDS_OF_WORKSPACE),
        ("crates/b/Cargo.toml", WHOLE_B),
        ("LICENSE-MIT", ""),
        ("crates/a/LICENSE-MIT", ""),
        ("crates/b/LICENSE-MIT", ""),
        (
            "crates/c/Cargo.toml",
            "[package]\nname = \"c\"\npublish = false\n[dependencies]\nd = { path = \"../d\" }",
        ),
    ],
};

const WHOLE: &str = "[package]\nname = \"a\"\ndescription = \"x\"\nlicense.workspace = true\n\
                     readme.workspace = true\nrust-version.workspace = true";
const WHOLE_B: &str = "[package]\nname = \"b\"\ndescription = \"x\"\nlicense = \"MIT\"\n\
                       readme = \"README.md\"\nrust-version = \"1.90\"";
const NEEDS_A_PATH: &str = "[package]\nname = \"a\"\ndescription = \"x\"\nlicense.workspace = true\n\
                            readme.workspace = true\nrust-version.workspace = true\n\
                            [dependencies]\nb = { path = \"../b\" }";
const NEEDS_OF_WORKSPACE: &str = "[package]\nname = \"a\"\ndescription = \"x\"\nlicense.workspace = true\n\
                                  readme.workspace = true\nrust-version.workspace = true\n\
                                  [dependencies]\nb.workspace = true\nserde.workspace = true\n\
                                  [dev-dependencies]\nc = { path = \"../c\" }";

/// A manifest without one of the fields.
const fn without(field: &str) -> &'static str {
    match field.as_bytes()[0] {
        b'd' => "[package]\nname = \"a\"\nlicense = \"MIT\"\nreadme = \"x\"\nrust-version = \"1\"",
        b'l' => {
            "[package]\nname = \"a\"\ndescription = \"x\"\nreadme = \"x\"\nrust-version = \"1\""
        }
        _ if field.as_bytes()[1] == b'e' => {
            "[package]\nname = \"a\"\ndescription = \"x\"\nlicense = \"MIT\"\nrust-version = \"1\""
        }
        _ => "[package]\nname = \"a\"\ndescription = \"x\"\nlicense = \"MIT\"\nreadme = \"x\"",
    }
}

/// The keys that each has, and `repository` where the workspace has it.
const FIELDS: [&str; 4] = ["description", "license", "readme", "rust-version"];

/// Crates that must be among the published.
const LIBRARY: &str = "softfault";

fn check(sources: &Sources) -> Vec<Broken> {
    let root = Manifest::of("Cargo.toml", sources.text("Cargo.toml").unwrap_or(""));
    let all: Vec<Manifest<'_>> = (sources.manifests())
        .map(|(path, text)| Manifest::of(path, text))
        .filter(|manifest| manifest.name().is_some())
        .collect();
    let mut broken = Vec::new();
    for manifest in &all {
        let path = manifest.path;
        if !manifest.is_published() {
            if manifest.name() == Some(LIBRARY) {
                broken.push(format!("{path} is not published"));
            }
            continue;
        }
        let address = root.value("workspace.package", "repository").is_some();
        for field in FIELDS.into_iter().chain(address.then_some("repository")) {
            if manifest.value("package", field).is_none() {
                broken.push(format!("{path} has no {field}"));
            }
        }
        for licence in sources.paths().filter(|path| path.starts_with("LICENSE")) {
            let copy = path.replace("Cargo.toml", licence);
            if !sources.paths().any(|path| path == copy) {
                broken.push(format!("{copy} is not there: a link to the workspace's"));
            }
        }
        for (key, value) in manifest.section("dependencies") {
            let key = key.strip_suffix(".workspace").unwrap_or(key);
            let inherited = root.value("workspace.dependencies", key);
            let value = if value.contains("path =") {
                value
            } else {
                inherited.unwrap_or(value)
            };
            if !value.contains("path =") {
                continue;
            }
            if !value.contains("version =") {
                broken.push(format!("{path}: {key} has a path and no version"));
            }
            let name = quoted_after(value, "package =").unwrap_or(key);
            let needed = all.iter().find(|other| other.name() == Some(name));
            if needed.is_some_and(|needed| !needed.is_published()) {
                broken.push(format!("{path}: {name} is not published"));
            }
        }
    }
    broken
}

/// A manifest by its lines: as much of TOML as manifests here use.
struct Manifest<'a> {
    path: &'a str,
    /// (section, key, the value)
    lines: Vec<(&'a str, &'a str, &'a str)>,
}

impl<'a> Manifest<'a> {
    fn of(path: &'a str, text: &'a str) -> Self {
        let (mut section, mut lines) = ("", Vec::new());
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix('[') {
                section = name.trim_matches(['[', ']']);
            } else if let Some((key, value)) = line.split_once('=')
                && !line.starts_with('#')
            {
                lines.push((section, key.trim(), value.trim()));
            }
        }
        Self { path, lines }
    }

    fn section(&self, name: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let of_it = self.lines.iter().filter(move |line| line.0 == name);
        of_it.map(|&(_, key, value)| (key, value))
    }

    /// A field's value, its own or the workspace's.
    fn value(&self, section: &str, field: &str) -> Option<&'a str> {
        let found = (self.section(section))
            .find(|(key, _)| *key == field || key.strip_suffix(".workspace") == Some(field));
        found.map(|(_, value)| value)
    }

    fn name(&self) -> Option<&'a str> {
        self.value("package", "name")
            .map(|name| name.trim_matches('"'))
    }

    fn is_published(&self) -> bool {
        self.value("package", "publish") != Some("false")
    }
}

/// The first quoted text behind `start`.
fn quoted_after<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(start)?;
    rest.split('"').nth(1)
}
