//! SentencePiece models, written here byte by byte, beside the crate's BPE and unigram models set up as converters do.

use std::collections::{BTreeSet, HashMap};

use serde_json::{json, Value};

use super::vocabularies::{merges, options, words};
use super::{agree, Engine};
use crate::tok::{spm, Options};

/// Pieces with their scores; the first three are <unk>, <s> and </s>, then 256 bytes where there are any.
struct Pieces {
    texts: Vec<String>,
    scores: Vec<f32>,
    merges: Vec<(String, String)>,
    bytes: bool,
}

const CONTROL: [&str; 3] = ["<unk>", "<s>", "</s>"];

/// Characters and merged pieces over texts at random in which a space is U+2581. A piece that has two cuts into pieces is
/// left out: the crate ranks pairs and SentencePiece what they make, which is the same where a piece has one cut.
fn pieces(seed: u64, count: usize, bytes: bool) -> Pieces {
    let split = |w: &String| w.replace(' ', "\u{2581}").chars().map(String::from).collect::<Vec<_>>();
    let words: Vec<Vec<String>> = words(seed, 150).iter().map(split).collect();
    let mut frequent: HashMap<&str, usize> = HashMap::new();
    words.iter().flatten().for_each(|c| *frequent.entry(c).or_default() += 1);
    // Rare characters stay unknown.
    let characters: BTreeSet<String> = frequent.iter().filter(|c| *c.1 > 3).map(|c| c.0.to_string()).collect();
    let mut known: Vec<String> = characters.into_iter().collect();
    let mut kept: Vec<(String, String)> = Vec::new();
    for (a, b) in merges(&words, count) {
        let whole = format!("{a}{b}");
        if known.contains(&a) && known.contains(&b) && !known.contains(&whole) {
            known.push(whole);
            kept.push((a, b));
        }
    }
    while let Some(doubled) = kept.iter().position(|(a, b)| cuts(&format!("{a}{b}"), &known) > 1) {
        let (a, b) = kept.remove(doubled);
        let whole = format!("{a}{b}");
        known.retain(|t| *t != whole);
        kept.retain(|(a, b)| known.contains(a) && known.contains(b));
        known.retain(|t| t.chars().count() == 1 || kept.iter().any(|(a, b)| *t == format!("{a}{b}")));
    }
    let mut texts: Vec<String> = CONTROL.iter().map(|t| t.to_string()).collect();
    if bytes {
        texts.extend((0..256).map(|b| format!("<0x{b:02X}>")));
    }
    let first = texts.len();
    texts.extend(kept.iter().map(|(a, b)| format!("{a}{b}")));
    texts.extend(known.into_iter().filter(|t| t.chars().count() == 1));
    let scores = (0..texts.len()).map(|i| if i < first { 0.0 } else { -((i - first) as f32) }).collect();
    Pieces { texts, scores, merges: kept, bytes }
}

fn cuts(whole: &str, known: &[String]) -> usize {
    let at = whole.char_indices().skip(1).map(|c| c.0);
    at.filter(|&i| known.iter().any(|t| t == &whole[..i]) && known.iter().any(|t| t == &whole[i..])).count()
}

/// A protocol buffer while it is written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }
    fn int(mut self, field: u64, n: u64) -> Message {
        self.varint(field << 3);
        self.varint(n);
        self
    }
    fn float(mut self, field: u64, x: f32) -> Message {
        self.varint(field << 3 | 5);
        self.0.extend(x.to_le_bytes());
        self
    }
    fn bytes(mut self, field: u64, data: &[u8]) -> Message {
        self.varint(field << 3 | 2);
        self.varint(data.len() as u64);
        self.0.extend(data);
        self
    }
}

/// (model type, normaliser) as sentencepiece_model.proto numbers them.
fn model_file(p: &Pieces, unigram: bool, dummy_prefix: bool, remove_spaces: bool) -> Vec<u8> {
    let mut file = Message::default();
    for (id, (text, score)) in p.texts.iter().zip(&p.scores).enumerate() {
        let kind = match id {
            0 => 2,
            1 | 2 => 3,
            _ if p.bytes && id < 3 + 256 => 6,
            _ => 1,
        };
        file = file.bytes(1, &Message::default().bytes(1, text.as_bytes()).float(2, *score).int(3, kind).0);
    }
    let trainer = Message::default().int(3, if unigram { 1 } else { 2 }).int(35, p.bytes as u64);
    let normalizer = Message::default().int(3, dummy_prefix as u64).int(4, remove_spaces as u64).int(5, 1);
    file.bytes(2, &trainer.0).bytes(3, &normalizer.0).0
}

/// The tokenizer.json that a converter makes of such a model.
fn oracle(p: &Pieces, unigram: bool, normalizers: Vec<Value>) -> tokenizers::Tokenizer {
    let added = |id: usize| json!({"id": id, "content": CONTROL[id], "special": true, "lstrip": false, "rstrip": false, "single_word": false, "normalized": false});
    let model = if unigram {
        let vocab: Vec<Value> = p.texts.iter().zip(&p.scores).map(|(t, s)| json!([t, s])).collect();
        json!({"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": p.bytes})
    } else {
        let vocab: serde_json::Map<String, Value> = p.texts.iter().enumerate().map(|(id, t)| (t.clone(), json!(id))).collect();
        let merges: Vec<Value> = p.merges.iter().map(|m| json!([m.0, m.1])).collect();
        json!({"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null, "end_of_word_suffix": null,
               "fuse_unk": true, "byte_fallback": p.bytes, "ignore_merges": false, "vocab": vocab, "merges": merges})
    };
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [added(0), added(1), added(2)],
        "normalizer": {"type": "Sequence", "normalizers": normalizers}, "pre_tokenizer": null, "post_processor": null,
        "decoder": null, "model": model,
    });
    file.to_string().parse().unwrap()
}

fn replace(pattern: Value, content: &str) -> Value {
    json!({"type": "Replace", "pattern": pattern, "content": content})
}

fn spaces_to_marks() -> Value {
    replace(json!({"String": " "}), "\u{2581}")
}

fn prefix() -> Value {
    json!({"type": "Prepend", "prepend": "\u{2581}"})
}

const INSIDE: &[&str] = &["<s>", "</s>", "<unk>", "<s", " </s> "];

/// The crate finds byte pieces in the text; SentencePiece does not. None of the texts has one by chance.
fn no_byte_piece(text: &str) -> bool {
    !text.contains("<0x")
}

/// SentencePiece drops marks at the end that the text itself had, which the crate's replacements cannot.
fn no_mark(text: &str) -> bool {
    no_byte_piece(text) && !text.contains('\u{2581}')
}

fn compare(unigram: bool) {
    for (seed, bytes) in [(1, true), (2, false), (3, true)] {
        let p = pieces(seed, 300, bytes);
        for dummy_prefix in [true, false] {
            let tok = spm::load(&model_file(&p, unigram, dummy_prefix, false), &options()).unwrap();
            assert!(matches!(tok.engine, Engine::Spm(_)));
            let normalizers = if dummy_prefix { vec![prefix(), spaces_to_marks()] } else { vec![spaces_to_marks()] };
            let name = format!("unigram {unigram}, seed {seed}, dummy prefix {dummy_prefix}");
            agree(&name, &tok, &oracle(&p, unigram, normalizers), 500 + seed, 300, INSIDE, no_byte_piece);
        }
        let tok = spm::load(&model_file(&p, unigram, true, true), &options()).unwrap();
        let trimmed =
            vec![replace(json!({"Regex": "^ +| +$"}), ""), replace(json!({"Regex": " +"}), " "), prefix(), spaces_to_marks()];
        agree("without extra white space", &tok, &oracle(&p, unigram, trimmed), 600 + seed, 300, INSIDE, no_mark);
    }
}

#[test]
fn bpe_gives_the_crates_ids() {
    compare(false);
}

#[test]
fn unigram_gives_the_crates_ids() {
    compare(true);
}

/// The dummy prefix before the first segment alone (transformers' legacy=false).
#[test]
fn prefix_once() {
    let p = pieces(4, 300, true);
    let once = Options { prefix_once: true, ..options() };
    let tok = spm::load(&model_file(&p, false, true, false), &once).unwrap();
    let with = oracle(&p, false, vec![prefix(), spaces_to_marks()]);
    let without = oracle(&p, false, vec![spaces_to_marks()]);
    let mut r = super::Random::new(700);
    for _ in 0..500 {
        let (first, second) = (super::texts::text(&mut r, &[]), super::texts::text(&mut r, &[]));
        let mut expected = super::ids_of(&with, &first, false);
        expected.push(1);
        expected.extend(super::ids_of(&without, &second, false));
        assert_eq!(tok.encode(&format!("{first}<s>{second}"), false).unwrap(), expected, "{first:?} {second:?}");
    }
}
