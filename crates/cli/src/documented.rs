//! The commands that the documents name are ones that this binary takes, with values that it takes.

mod commands;

use super::{Cli, Command, LabCommand, lab, sim};
use clap::Parser;
use clap::error::ErrorKind;
use commands::{Documented, commands, documents};

/// Why the command is not taken as it is, if it is not.
fn refused(documented: &Documented) -> Option<String> {
    let cli = match Cli::try_parse_from(&documented.words) {
        Ok(cli) => cli,
        Err(error) => {
            let missing = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
            let is_fine = match error.kind() {
                ErrorKind::DisplayHelp => true,
                ErrorKind::MissingRequiredArgument => documented.is_mention,
                kind => documented.is_mention && kind == missing,
            };
            return (!is_fine).then(|| error.to_string());
        }
    };
    let checked = match &cli.command {
        Command::Lab(LabCommand::Run(args)) => lab::plan::Plan::new(args).map(drop),
        Command::Sim(command) => sim::check(command),
        _ => Ok(()),
    };
    checked.err().map(|error| error.to_string())
}

#[test]
fn every_command_in_the_documents_is_taken() {
    let documents = documents();
    let all: Vec<Documented> = (documents.iter())
        .flat_map(|(name, text)| commands(name, text))
        .collect();
    // A search that finds nothing would find nothing wrong.
    for name in ["README.md", "docs/documents.md", "docs/measurements.md"] {
        let has_some = all
            .iter()
            .any(|one| one.place.starts_with(name) && !one.is_mention);
        assert!(has_some, "{name} has commands");
    }
    let refused = |one: &Documented| Some(format!("{}\n    {}", one.place, refused(one)?));
    let refused: Vec<String> = all.iter().filter_map(refused).collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn commands_that_are_not_taken_are_found() {
    let found = |text: &str| {
        let all = commands("A.md", text);
        all.iter().filter_map(refused).count()
    };
    for text in [
        "```\nsoftfault lab run scan --on softfalt\n```",
        "```\nsoftfault lab run scan --on kernel --timeout 0\n```",
        "```sh\nM=nothing\nsoftfault sim pft \\\n  --policies $M\n```",
        "```\nSOFTFAULT_FAULTS=messages softfault lab walk\n```",
        "```\ncargo run --release --bin softfault -- tuor\n```",
        "see `softfault doctor --jason`",
    ] {
        assert_eq!(found(text), 1, "{text}");
    }
    for text in [
        "```\nM=lock=rwsem\nsoftfault sim pft --policies $M   # a comment\n```",
        "`softfault run`, `softfault lab run ... --seeds`, `softfault = { path = \"…\" }`, `cargo run --release`",
    ] {
        assert_eq!(found(text), 0, "{text}");
    }
}
