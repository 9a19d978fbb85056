//! The report as a real browser lays it out: light and dark, on a desk and on a phone.
//!
//! Needs chromium (Debian: `apt-get install chromium`); says that it was skipped where there is none.

use super::directory;
use super::report::{all, page};
use serde_json::Value;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Looks at every text and bar of the page and tells the page around, as JSON, the faults it found.
const LOOK: &str = include_str!("look.js");

/// The page around: a frame of the width to look at (a window cannot be as narrow as a phone).
fn frame(file: &Path, width: u32) -> String {
    format!(
        "<!DOCTYPE html><style>:root {{ color-scheme: light dark }} body {{ margin: 0 }} \
         iframe {{ border: 0; width: {width}px; height: 2400px }}</style>\
         <pre id=\"verdict\"></pre><script>onmessage = (told) => \
         {{ document.getElementById('verdict').textContent = told.data; }};</script>\
         <iframe src=\"file://{}\"></iframe>",
        file.display()
    )
}

struct View {
    name: &'static str,
    width: u32,
    dark: bool,
}

const VIEWS: [View; 4] = [
    View {
        name: "desk, light",
        width: 1280,
        dark: false,
    },
    View {
        name: "desk, dark",
        width: 1280,
        dark: true,
    },
    View {
        name: "tablet, light",
        width: 800,
        dark: false,
    },
    View {
        name: "phone, dark",
        width: 360,
        dark: true,
    },
];

fn browser() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let mut paths = names
        .iter()
        .flat_map(|name| folders.iter().map(move |dir| dir.join(name)));
    paths.find(|path| path.is_file())
}

/// Runs the browser over `file` and returns its stdout.
fn look(browser: &Path, file: &Path, view: &View, arguments: &[&str]) -> String {
    let profile = file.with_extension("profile");
    let mut command = Command::new(browser);
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ])
        .args(["--hide-scrollbars", "--force-device-scale-factor=1"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg("--window-size=1400,2400")
        .args(arguments);
    if view.dark {
        command.arg("--blink-settings=preferredColorScheme=0");
    } else {
        command.arg("--blink-settings=preferredColorScheme=1");
    }
    command.arg(format!("file://{}", file.display()));
    // A browser that gives up on a busy machine has said nothing of the page.
    let mut output = command.output().expect("it starts");
    for _ in 0..2 {
        if !output.status.success() {
            output = command.output().expect("it starts");
        }
    }
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {err}", view.name);
    String::from_utf8(output.stdout).expect("a page in UTF-8")
}

#[test]
fn nothing_overlaps_overflows_or_lacks_its_colour() {
    let Some(browser) = browser() else {
        softfault_skip::skipped(
            "browser",
            "no chromium to look at the report with; apt-get install chromium",
        );
        return;
    };
    let dir = directory();
    let page = page(dir.path(), &all());
    let policy = "<meta http-equiv=\"Content-Security-Policy\"";
    assert!(
        page.contains(policy),
        "the page forbids scripts, ours included"
    );
    let looked_at = page
        .replace(policy, "<meta name=\"no-policy\"")
        .replace("</body>", &format!("<script>{LOOK}</script></body>"));
    let file = dir.path().join("looked-at.html");
    std::fs::write(&file, looked_at).unwrap();
    let around = dir.path().join("around.html");
    for view in &VIEWS {
        std::fs::write(&around, frame(&file, view.width)).unwrap();
        let dom = look(
            &browser,
            &around,
            view,
            // Virtual time: it ends when nothing is left to be done, not when it is over.
            &["--dump-dom", "--virtual-time-budget=5000"],
        );
        let verdict = dom
            .split("<pre id=\"verdict\">")
            .nth(1)
            .expect("the script ran");
        let verdict = verdict
            .split("</pre>")
            .next()
            .unwrap()
            .replace("&lt;", "<")
            .replace("&gt;", ">");
        let verdict: Value = serde_json::from_str(&verdict.replace("&amp;", "&")).unwrap();
        assert_eq!(verdict["width"], view.width, "{}", view.name);
        assert_eq!(verdict["dark"], view.dark, "{}", view.name);
        // Five engines' lines in each of pft's four charts, and those of random; the matrix goes from
        // a thousandfold of bytes read in vain to none.
        for (what, least) in [("texts", 1000), ("bars", 200), ("lines", 22), ("tints", 4)] {
            let found = verdict[what].as_u64();
            assert!(found >= Some(least), "{}: {what}: {found:?}", view.name);
        }
        let wrong = verdict["wrong"].as_array().unwrap();
        assert!(wrong.is_empty(), "{}: {wrong:#?}", view.name);
    }
}

#[test]
fn a_picture_of_it_is_not_blank() {
    let Some(browser) = browser() else {
        softfault_skip::skipped(
            "browser",
            "no chromium to look at the report with; apt-get install chromium",
        );
        return;
    };
    let dir = directory();
    page(dir.path(), &all());
    let file = dir.path().join("around.html");
    let picture = dir.path().join("page.png");
    for view in &VIEWS {
        std::fs::write(&file, frame(&dir.path().join("page.html"), view.width)).unwrap();
        let screenshot = format!("--screenshot={}", picture.display());
        look(&browser, &file, view, &[&screenshot]);
        let pixels = pixels(&picture);
        let grey = |rgb: &[u8; 3]| rgb.iter().map(|&part| u32::from(part)).sum::<u32>() / 3;
        let ground = grey(&pixels[0]);
        assert!(
            if view.dark { ground < 64 } else { ground > 192 },
            "{}: {ground}",
            view.name
        );
        let drawn = pixels
            .iter()
            .filter(|rgb| grey(rgb).abs_diff(ground) > 40)
            .count();
        assert!(
            drawn * 50 > pixels.len(),
            "{}: {drawn} of {}",
            view.name,
            pixels.len()
        );
        // Kernel and softfault in their colours: the reddest is not the bluest.
        let colours: HashSet<&[u8; 3]> = pixels.iter().collect();
        let vivid = |strong: usize, weak: usize| {
            colours
                .iter()
                .any(|rgb| rgb[strong].abs_diff(rgb[weak]) > 100 && rgb[strong] > rgb[weak])
        };
        assert!(vivid(0, 2) && vivid(2, 0), "{}: no colour", view.name);
    }
}

/// The picture's pixels without their transparency.
fn pixels(path: &Path) -> Vec<[u8; 3]> {
    let file = std::io::BufReader::new(std::fs::File::open(path).expect("a picture"));
    let mut reader = png::Decoder::new(file).read_info().expect("a PNG");
    let mut bytes = vec![0; reader.output_buffer_size().expect("a size that memory has")];
    let frame = reader.next_frame(&mut bytes).expect("a whole PNG");
    let step = frame.color_type.samples();
    let pixels = bytes[..frame.buffer_size()].chunks_exact(step);
    pixels.map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect()
}
