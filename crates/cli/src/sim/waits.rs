//! Tables that the lab has too: document 000's rounds and document 002's waits, by the lab's own code, and
//! the documents' figures under them.

use super::documents::{Documents, documents};
use super::rates::distinct;
use super::row::simulated;
use crate::compare::cases::Cases;
use crate::compare::{rounds, waits};
use crate::results::row::{RANGES, Row};
use crate::table::{Table, figure};

/// Rounds and retries of thrash; locks and waits of workloads that waited.
pub fn tables(rows: &[Row]) -> String {
    let names = distinct(rows, |row| row.on.clone());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let cases = Cases::all(rows, &names);
    let Some(first) = rows.first() else {
        return String::new();
    };
    let mut text = match &names[..] {
        [before, after] => format!("\nbefore: {before}\nafter:  {after}\n"),
        _ => String::new(),
    };
    match &first.workload[..] {
        "thrash" => {
            text += &rounds::tables(&cases);
            text += &thrash(&documents());
            text += &waits::tables(&cases);
        }
        "warm-start" => {
            text += &waits::tables(&cases);
            text += &warm_start(&documents());
        }
        "swap-retry" => {
            text += &rounds::tables(&cases);
            text += &waits::tables(&cases);
            text += &swap(rows);
            text += &warm_start(&documents());
        }
        "anon" => {
            text += &waits::tables(&cases);
            text += &swap(rows);
        }
        "storm" => text += &waits::tables(&cases),
        // Rates are all that their documents have.
        _ => return String::new(),
    }
    text
}

/// The pages that went to swap and came back, a line for each run.
fn swap(rows: &[Row]) -> String {
    let header = [
        "Case", "Cores", "Seed", "Out", "In", "Dropped", "Stayed", "Full",
    ];
    let mut table = Table::plain(&header, 1);
    for row in rows {
        let Some(swap) = &row.swap else { continue };
        table.row([
            simulated(row).policy.clone(),
            simulated(row).cores.to_string(),
            row.seed.unwrap_or_default().to_string(),
            figure::whole(swap.pages_out),
            figure::whole(swap.pages_in),
            figure::whole(swap.clean_drops),
            figure::whole(swap.rescued),
            figure::whole(swap.full),
        ]);
    }
    table.titled("Pages between memory and swap")
}

fn thrash(documents: &Documents) -> String {
    let document = &documents.thrash;
    let header = [
        "Case",
        "Total Rounds",
        "Throughput",
        "Miss/Drop(%)",
        "RETRY_MMAP_DROP",
        "RETRY_IO_MISS",
    ];
    let mut table = Table::plain(&header, 1);
    for row in &document.rows {
        table.row([
            row.case.clone(),
            figure::whole(row.rounds),
            format!("{:.2} /s", row.rounds_per_s),
            format!("{:.2}", row.miss_drop_percent),
            figure::whole(row.retry_mmap_drop),
            figure::whole(row.retry_io_miss),
        ]);
    }
    let title = format!(
        "Document {}: {}, {} s ({})",
        document.document, document.machine, document.seconds, document.source
    );
    table.titled(&title)
}

fn warm_start(documents: &Documents) -> String {
    let document = &documents.warm_start;
    let title = format!(
        "Document {}: {} ({})",
        document.document, document.machine, document.source
    );
    let header = |first| [first, "Before (Avg)", "After (Avg)", "Change"];
    let mut metrics = Table::plain(&header("Metric"), 1);
    for (name, before, after) in &document.metrics {
        metrics.row(row(name, *before, *after));
    }
    let mut text = metrics.titled(&title);
    let distributions = [
        ("read", &document.read_ranges),
        ("write", &document.write_ranges),
    ];
    for (mode, ranges) in distributions {
        let mut table = Table::plain(&header("Range (us)"), 1);
        for (name, [before, after]) in RANGES.iter().zip(ranges) {
            table.row(row(name, *before as f64, *after as f64));
        }
        let title = format!(
            "Document {}: waits for mmap_lock, {mode}",
            document.document
        );
        text += &table.titled(&title);
    }
    text
}

fn row(name: &str, before: f64, after: f64) -> [String; 4] {
    let change = match (before, after) {
        (0.0, 0.0) => "N/A".into(),
        _ => figure::change(before, after),
    };
    let [before, after] = [before, after].map(figure::rounded);
    [name.to_owned(), before, after, change]
}
