//! Makes an index of drawn documents, or searches it:
//!
//! ```text
//! search make DIR DOCUMENTS
//! search run DIR QUERIES
//! ```
//!
//! The same seed each time, so every run of the same size answers the same, and prints it.

use std::error::Error;
use std::path::Path;
use tantivy::collector::{Count, TopDocs};
use tantivy::query::QueryParser;
use tantivy::schema::{STORED, Schema, TEXT, Value};
use tantivy::{Index, IndexWriter, ReloadPolicy, TantivyDocument, doc};

/// Words that documents are made of: the first ones more often.
const WORDS: u64 = 200_000;
const WORDS_A_DOCUMENT: usize = 150;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["make", dir, documents] => make(Path::new(dir), documents.parse()?),
        ["run", dir, queries] => run(Path::new(dir), queries.parse()?),
        _ => Err("search make DIR DOCUMENTS, or search run DIR QUERIES".into()),
    }
}

/// xorshift: drawn numbers, the same each time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// Word 0 is drawn most often, and each further one less.
    fn word(&mut self) -> u64 {
        let most = 1 + self.below(WORDS);
        self.below(most)
    }
}

fn make(dir: &Path, documents: u64) -> Result<(), Box<dyn Error>> {
    let mut schema = Schema::builder();
    let title = schema.add_text_field("title", TEXT | STORED);
    let body = schema.add_text_field("body", TEXT | STORED);
    let index = Index::create_in_dir(dir, schema.build())?;
    let mut writer: IndexWriter = index.writer_with_num_threads(1, 256 << 20)?;
    let mut draw = Draw(42);
    for number in 0..documents {
        let words = (0..WORDS_A_DOCUMENT).map(|_| format!("w{}", draw.word()));
        let words: Vec<_> = words.collect();
        let text = words.join(" ");
        writer.add_document(doc!(title => format!("document {number}"), body => text))?;
    }
    writer.commit()?;
    writer.wait_merging_threads()?;
    Ok(())
}

fn run(dir: &Path, queries: u64) -> Result<(), Box<dyn Error>> {
    let index = Index::open_in_dir(dir)?;
    let body = index.schema().get_field("body")?;
    let title = index.schema().get_field("title")?;
    let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual);
    let searcher = reader.try_into()?.searcher();
    let parser = QueryParser::for_index(&index, vec![body]);
    let mut draw = Draw(7);
    let mut sum = 7_u64;
    let mut hits = 0;
    for number in 0..queries {
        let (one, two) = (draw.word(), draw.word());
        let text = match number % 3 {
            0 => format!("w{one}"),
            1 => format!("w{one} w{two}"),
            _ => format!("+w{one} +w{two}"),
        };
        let query = parser.parse_query(&text)?;
        let top = TopDocs::with_limit(10).order_by_score();
        let (count, top) = searcher.search(&query, &(Count, top))?;
        hits += count;
        for (_, address) in top {
            let document: TantivyDocument = searcher.doc(address)?;
            let name = document.get_first(title).and_then(|name| name.as_str());
            for byte in name.unwrap_or_default().bytes() {
                sum = sum.wrapping_mul(31).wrapping_add(u64::from(byte));
            }
        }
    }
    println!("{queries} queries, {hits} hits, {sum}");
    Ok(())
}
