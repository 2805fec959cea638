//! Byte-level BPE from its three kinds of files.

use base64::Engine as _;
use serde_json::{json, Value};

use super::vocabularies::{byte_level, options, ByteLevel};
use super::{agree, anything, same_tokens, texts, Engine, Random};
use crate::tok::{alphabet, hfjson, tiktoken, AddedToken, Options};

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const LLAMA3: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const PATTERNS: [(&str, &str); 3] = [("gpt2", GPT2), ("qwen2", QWEN2), ("llama3", LLAMA3)];

/// (text, special, lstrip, rstrip, single_word)
type Added = (&'static str, bool, bool, bool, bool);
const ADDED: &[Added] = &[
    ("<|end|>", true, false, false, false),
    ("<|endless|>", true, false, false, false),
    ("[left]", false, true, false, false),
    ("[right]", true, false, true, false),
    ("[both]", false, true, true, false),
    ("then", false, false, false, true),
    ("\u{4e2d}\u{6587}", false, false, false, false),
];

fn added_json(first: usize) -> Vec<Value> {
    let one = |(i, t): (usize, &Added)| json!({"id": first + i, "content": t.0, "special": t.1, "lstrip": t.2, "rstrip": t.3, "single_word": t.4, "normalized": false});
    ADDED.iter().enumerate().map(one).collect()
}

fn vocab_json(v: &ByteLevel) -> Value {
    v.tokens.iter().enumerate().map(|(id, t)| (t.clone(), json!(id))).collect::<serde_json::Map<_, _>>().into()
}

/// tokenizer.json as published ones are.
fn file(v: &ByteLevel, regex: &str, nfc: bool, ignore_merges: bool) -> Value {
    let first = v.tokens.len();
    let byte_level =
        |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex});
    let split = json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added_json(first),
        "normalizer": if nfc { json!({"type": "NFC"}) } else { Value::Null },
        "pre_tokenizer": if regex == GPT2 { byte_level(true) }
            else { json!({"type": "Sequence", "pretokenizers": [split, byte_level(false)]}) },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [first], "tokens": ["<|end|>"]}},
        },
        "decoder": byte_level(true),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "ignore_merges": ignore_merges,
            "vocab": vocab_json(v), "merges": v.merges.iter().map(|m| json!([m.0, m.1])).collect::<Vec<_>>(),
        },
    })
}

fn oracle(file: &Value) -> tokenizers::Tokenizer {
    file.to_string().parse().unwrap()
}

fn inside() -> Vec<&'static str> {
    ADDED.iter().map(|t| t.0).chain(["<|end", "|>", " then ", "thenthen", "[left] [right]"]).collect()
}

/// What the other files say of the same tokens.
fn given(pattern: &str, v: &ByteLevel, nfc: bool) -> Options {
    let added = added_json(v.tokens.len()).into_iter().map(|t| serde_json::from_value::<AddedToken>(t).unwrap());
    let end = v.tokens.len() as u32;
    Options { pattern: pattern.into(), nfc, added_tokens: added.collect(), prefix: vec![end], ..options() }
}

#[test]
fn tokenizer_json_gives_the_crates_ids() {
    for (seed, (name, regex)) in PATTERNS.into_iter().enumerate() {
        let v = byte_level(seed as u64 + 1, 350);
        for (nfc, ignore_merges) in [(false, false), (true, false), (false, true)] {
            let file = file(&v, regex, nfc, ignore_merges);
            let tok = hfjson::load(&file.to_string(), &options()).unwrap();
            assert!(matches!(tok.engine, Engine::ByteBpe(_)), "{name} is read by the fast engine");
            let name = format!("{name}, nfc {nfc}, ignore_merges {ignore_merges}");
            agree(&name, &tok, &oracle(&file), 100 + seed as u64, 300, &inside(), anything);
            same_tokens(&name, &tok, &oracle(&file));
        }
    }
}

#[test]
fn vocab_and_merges_give_the_crates_ids() {
    for (seed, (name, regex)) in PATTERNS.into_iter().enumerate() {
        let v = byte_level(seed as u64 + 11, 350);
        let lines: String = v.merges.iter().map(|m| format!("{} {}\n", m.0, m.1)).collect();
        let nfc = seed == 1;
        let merges = format!("#version: 0.2\n{lines}");
        let tok = tiktoken::from_vocab_merges(&vocab_json(&v).to_string(), &merges, &given(name, &v, nfc)).unwrap();
        let file = file(&v, regex, nfc, false);
        agree(name, &tok, &oracle(&file), 200 + seed as u64, 300, &inside(), anything);
        same_tokens(name, &tok, &oracle(&file));
    }
}

/// Merges that make tiktoken's ids of the crate: every cut of a token in two, by the token's rank (as transformers does).
fn all_cuts(v: &ByteLevel) -> Vec<(String, String)> {
    let known: std::collections::HashSet<&str> = v.tokens.iter().map(String::as_str).collect();
    let cuts = |t: &String| {
        let at = t.char_indices().skip(1).map(|c| c.0).collect::<Vec<_>>();
        at.into_iter().map(|i| (t[..i].to_string(), t[i..].to_string())).collect::<Vec<_>>()
    };
    v.tokens.iter().flat_map(cuts).filter(|(a, b)| known.contains(a.as_str()) && known.contains(b.as_str())).collect()
}

#[test]
fn ranks_give_the_crates_ids() {
    for (seed, (name, regex)) in PATTERNS.into_iter().enumerate() {
        let mut v = byte_level(seed as u64 + 21, 350);
        let encode = |t: &String| base64::engine::general_purpose::STANDARD.encode(alphabet::to_bytes(t).unwrap());
        let ranks: String = v.tokens.iter().enumerate().map(|(id, t)| format!("{} {id}\n", encode(t))).collect();
        let tok = tiktoken::from_ranks(&ranks, &given(name, &v, false)).unwrap();
        v.merges = all_cuts(&v);
        let file = file(&v, regex, false, true);
        agree(name, &tok, &oracle(&file), 300 + seed as u64, 300, &inside(), anything);
        same_tokens(name, &tok, &oracle(&file));
    }
}

#[test]
fn tokens_bytes_are_the_text_again() {
    let v = byte_level(31, 350);
    let tok = hfjson::load(&file(&v, QWEN2, false, false).to_string(), &options()).unwrap();
    let mut r = Random::new(400);
    for _ in 0..1000 {
        let text = texts::text(&mut r, &["<|end|>", "then"]);
        let ids = tok.encode(&text, false).unwrap();
        let bytes: Vec<u8> = ids.iter().flat_map(|id| tok.table.bytes(*id).unwrap().to_vec()).collect();
        assert_eq!(bytes, text.as_bytes());
    }
}

/// A comparison that cannot fail is none: one merge left out must be seen.
#[test]
#[should_panic(expected = "left out")]
fn a_difference_is_found() {
    let mut v = byte_level(1, 350);
    let oracle = oracle(&file(&v, QWEN2, false, false));
    v.merges.remove(0);
    let tok = hfjson::load(&file(&v, QWEN2, false, false).to_string(), &options()).unwrap();
    agree("left out", &tok, &oracle, 100, 1000, &[], anything);
}
