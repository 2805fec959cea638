//! Small vocabularies, learned in the test: BPE merges of texts at random, over bytes or over characters.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use crate::random_texts::{text, Random};
use crate::tok::{alphabet, Options};

/// Words of texts at random with the white space before them.
pub fn words(seed: u64, texts: usize) -> Vec<String> {
    let mut r = Random::new(seed);
    let mut out: Vec<String> = Vec::new();
    for _ in 0..texts {
        let text = text(&mut r, &[]);
        let mut word = String::new();
        for c in text.chars() {
            if c.is_whitespace() && !word.is_empty() && !word.ends_with(char::is_whitespace) {
                out.push(std::mem::take(&mut word));
            }
            word.push(c);
        }
        out.push(word);
    }
    out
}

/// The most frequent pairs, merged one after the other; ties go to the smaller pair.
pub fn merges(words: &[Vec<String>], count: usize) -> Vec<(String, String)> {
    let mut frequent: BTreeMap<&[String], usize> = BTreeMap::new();
    words.iter().for_each(|w| *frequent.entry(w).or_default() += 1);
    let mut words: Vec<(Vec<String>, usize)> = frequent.into_iter().map(|(w, n)| (w.to_vec(), n)).collect();
    let mut out: Vec<(String, String)> = Vec::new();
    while out.len() < count {
        let mut seen: HashMap<(&str, &str), usize> = HashMap::new();
        for (word, n) in &words {
            word.windows(2).for_each(|pair| *seen.entry((&pair[0], &pair[1])).or_default() += n);
        }
        let Some((&(a, b), _)) = seen.iter().max_by_key(|&(pair, n)| (n, Reverse(pair))) else { break };
        let (a, b) = (a.to_string(), b.to_string());
        for (word, _) in &mut words {
            let mut at = 0;
            while at + 1 < word.len() {
                if word[at] == a && word[at + 1] == b {
                    word[at] += &b;
                    word.remove(at + 1);
                }
                at += 1;
            }
        }
        out.push((a, b));
    }
    out
}

/// A byte-level vocabulary: tokens in the byte alphabet by id, and merges.
pub struct ByteLevel {
    pub tokens: Vec<String>,
    pub merges: Vec<(String, String)>,
}

pub fn byte_level(seed: u64, count: usize) -> ByteLevel {
    let split = |w: &String| w.bytes().map(|b| alphabet::to_text(&[b])).collect::<Vec<_>>();
    let words: Vec<Vec<String>> = words(seed, 150).iter().map(split).collect();
    let mut tokens: Vec<String> = (0..=255u8).map(|b| alphabet::to_text(&[b])).collect();
    let mut kept = Vec::new();
    for (a, b) in merges(&words, count) {
        let whole = format!("{a}{b}");
        if !tokens.contains(&whole) {
            tokens.push(whole);
        }
        kept.push((a, b));
    }
    ByteLevel { tokens, merges: kept }
}

pub fn options() -> Options {
    Options { max_vocab: 1 << 20, max_token_bytes: 1 << 12, max_text_bytes: 1 << 24, ..Options::default() }
}
