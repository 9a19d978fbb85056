//! Sizes as people write them: `4G`, `512M`, `1.5G`, `4096`; K, M, G and T are powers of 1024.

use std::num::IntErrorKind;

/// Bytes that `text` names, or why it names none.
pub fn parse(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let end = lower
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(lower.len());
    let (number, unit) = lower.split_at(end);
    let shift = match unit.trim() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(format!("`{text}` is not a size such as 512M or 1.5G")),
    };
    let not_a_size = |_| format!("`{text}` is not a size such as 512M or 1.5G");
    let bytes = if number.contains('.') {
        let value: f64 = number.parse().map_err(|_| not_a_size(()))?;
        let bytes = value * (1u64 << shift) as f64;
        (bytes < i64::MAX as f64).then_some(bytes as u64)
    } else {
        match number.parse::<u64>() {
            Ok(value) => value
                .checked_mul(1 << shift)
                .filter(|&bytes| bytes <= i64::MAX as u64),
            Err(why) if *why.kind() == IntErrorKind::PosOverflow => None,
            Err(_) => return Err(not_a_size(())),
        }
    };
    match bytes {
        None => Err(format!("`{text}` is larger than any file")),
        Some(0) => Err("a size must be above zero".into()),
        Some(bytes) => Ok(bytes),
    }
}

/// `bytes` for a reader: three figures and a binary unit.
pub fn show(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit < 4 {
        value /= 1024.0;
        unit += 1;
    }
    let name = ["B", "KiB", "MiB", "GiB", "TiB"][unit];
    match unit {
        0 => format!("{bytes} B"),
        _ if value < 10.0 => format!("{value:.2} {name}"),
        _ if value < 100.0 => format!("{value:.1} {name}"),
        _ => format!("{value:.0} {name}"),
    }
}

/// A size as the arguments take it, without a rest.
pub fn argument(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let whole = units
        .into_iter()
        .find(|(shift, _)| bytes.is_multiple_of(1 << shift));
    match whole {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("64k"), Ok(64 << 10));
        assert_eq!(parse("512M"), Ok(512 << 20));
        assert_eq!(parse("1.5G"), Ok(3 << 29));
        assert_eq!(parse("1 TiB"), Ok(1 << 40));
    }

    #[test]
    fn invalid_sizes_are_refused() {
        for text in [
            "",
            "G",
            "-1",
            "0",
            "0.0001K",
            "1X",
            "1.2.3",
            "99999999T",
            "1e9T",
            "nan",
        ] {
            assert!(parse(text).is_err(), "{text} was taken for a size");
        }
    }

    #[test]
    fn a_size_that_no_file_has_is_no_mistake_in_writing() {
        for text in ["99999999T", "9999999999999999999", "99999999999999999999"] {
            let why = format!("`{text}` is larger than any file");
            assert_eq!(parse(text), Err(why));
        }
    }

    #[test]
    fn arguments_lose_nothing() {
        let texts = [4096, 1 << 20, 1536 << 20, 4097, 3 << 40].map(argument);
        assert_eq!(texts, ["4K", "1M", "1536M", "4097", "3072G"]);
    }

    #[test]
    fn sizes_as_people_read_them() {
        assert_eq!(show(512), "512 B");
        assert_eq!(show(1 << 30), "1.00 GiB");
        assert_eq!(show(1000 << 20), "0.98 GiB");
        assert_eq!(show(300 << 20), "300 MiB");
    }
}
