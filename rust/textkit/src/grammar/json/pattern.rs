//! Regular expressions of schemas: ECMA-262 as llguidance's engine reads it, matching, complements of sets of texts.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use llguidance::derivre::{Regex, RegexBuilder};
use llguidance::regex_to_lark;

use super::super::{Error, Res};

/// Steps for one pattern that is matched here.
const FUEL: u64 = 20_000;

/// The pattern with what the two dialects read differently inside of classes written out.
pub fn from_ecma(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut in_class = false;
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                out.push(c);
                out.extend(chars.next());
            }
            '[' if !in_class => {
                in_class = true;
                out.push(c);
                if chars.peek() == Some(&'^') {
                    out.extend(chars.next());
                }
                // ECMA's [] and [^] are the empty class and any character.
                if chars.peek() == Some(&']') {
                    chars.next();
                    in_class = false;
                    let any = out.ends_with('^');
                    out.truncate(out.len() - if any { 2 } else { 1 });
                    out.push_str(if any { r"[\s\S]" } else { r"[^\s\S]" });
                }
            }
            ']' if in_class => {
                in_class = false;
                out.push(c);
            }
            // Rust nests classes and joins them with && and ~~.
            '[' | '&' | '~' => {
                if in_class {
                    out.push('\\');
                }
                out.push(c);
            }
            _ if c.is_control() => out.push_str(&escape(c)),
            _ => out.push(c),
        }
    }
    out
}

#[derive(Default)]
pub struct Patterns {
    compiled: HashMap<String, Regex>,
}

impl Patterns {
    /// Compiles the pattern; an error says what is wrong with it.
    pub fn check(&mut self, pattern: &str) -> Res<()> {
        if self.compiled.contains_key(pattern) {
            return Ok(());
        }
        let mut builder = RegexBuilder::new();
        let made = builder.mk_regex_for_serach(&regex_to_lark(pattern, "dw")).and_then(|e| builder.to_regex_limited(e, FUEL));
        match made {
            Ok(regex) => {
                self.compiled.insert(pattern.to_string(), regex);
                Ok(())
            }
            Err(e) => {
                let message = e.to_string();
                let line = message.lines().last().unwrap_or_default().trim().to_string();
                Err(Error::Unsupported(line))
            }
        }
    }

    /// Whether the pattern is found in the text.
    pub fn matches(&mut self, pattern: &str, text: &str) -> Res<bool> {
        self.check(pattern)?;
        Ok(self.compiled.get_mut(pattern).is_some_and(|r| r.is_match(text)))
    }
}

#[derive(Default)]
struct Trie {
    end: bool,
    next: BTreeMap<char, Trie>,
}

/// A pattern of all texts but these.
pub fn all_but(texts: &BTreeSet<String>) -> String {
    let mut root = Trie::default();
    for text in texts {
        let mut at = &mut root;
        for c in text.chars() {
            at = at.next.entry(c).or_default();
        }
        at.end = true;
    }
    format!("^{}$", complement(&root))
}

fn escape(c: char) -> String {
    format!("\\u{{{:X}}}", c as u32)
}

fn complement(t: &Trie) -> String {
    let other = match t.next.is_empty() {
        true => "(?s:.)+".to_string(),
        false => format!("[^{}](?s:.)*", t.next.keys().map(|&c| escape(c)).collect::<String>()),
    };
    let mut parts = vec![other];
    parts.extend(t.next.iter().map(|(&c, child)| format!("{}{}", escape(c), complement(child))));
    format!("(?:{}){}", parts.join("|"), if t.end { "" } else { "?" })
}
