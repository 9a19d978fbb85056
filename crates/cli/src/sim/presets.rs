//! `softfault sim presets`: the machines that have a name.

use crate::error::Error;
use crate::output;
use clap::Args;
use softfault_sim::preset;
use softfault_sim::topology::Topology;

/// Arguments of `sim presets`.
#[derive(Args, Debug)]
pub struct PresetsArgs {
    /// Print this machine, or the file at this path, as JSON for --topology
    #[arg(value_name = "NAME|PATH")]
    topology: Option<String>,
}

/// A line of text for people.
const WIDTH: usize = 100;

/// Runs the command.
pub fn run(args: &PresetsArgs) -> Result<(), Error> {
    let text = match &args.topology {
        Some(name) => json(&preset::find(name).map_err(Error::input)?),
        None => preset::all().iter().map(about).collect(),
    };
    output::print(&text)
}

/// A topology as a file has it.
pub fn json(topology: &Topology) -> String {
    let mut text = serde_json::to_string_pretty(topology).expect("a topology is plain data");
    text.push('\n');
    text
}

fn about(topology: &Topology) -> String {
    let parts = [
        (topology.sockets, "sockets"),
        (topology.nodes, "nodes each"),
        (topology.clusters, "clusters each"),
        (topology.cores, "cores each"),
        (topology.smt, "threads each"),
    ];
    let shape: Vec<String> = (parts.iter())
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    let line = &topology.line;
    let ns = |picoseconds: u64| format!("{:.1}", picoseconds as f64 / 1e3);
    format!(
        "{}: {} CPUs ({})\n  a line costs in ns: {} where it is, {} from the thread beside, {} within a \
         cluster, {} a node, {} a socket, {} from the other socket, {} from memory\n{}\n",
        topology.name,
        topology.cpus(),
        shape.join(", "),
        ns(line.hit),
        ns(line.sibling),
        ns(line.cluster),
        ns(line.node),
        ns(line.socket),
        ns(line.remote),
        ns(line.memory),
        wrapped(&topology.source)
    )
}

/// The text in lines that are indented and not too long.
fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut line = String::from(" ");
    for word in text.split_whitespace() {
        if line.chars().count() + word.chars().count() >= WIDTH {
            lines += &format!("{line}\n");
            line = String::from(" ");
        }
        line += " ";
        line += word;
    }
    lines + &line + "\n"
}
