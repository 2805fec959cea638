//! Added tokens: matched as a whole in the raw text, before anything else sees it.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, MatchKind};

use super::options::AddedToken;
use super::{Error, Res};

#[derive(Default)]
pub struct AddedTokens {
    tokens: Vec<AddedToken>,
    by_text: HashMap<String, u32>,
    finder: Option<AhoCorasick>,
}

pub enum Piece<'a> {
    Token(u32),
    Text(&'a str),
}

impl AddedTokens {
    pub fn new(tokens: Vec<AddedToken>) -> Res<AddedTokens> {
        let by_text = tokens.iter().map(|t| (t.content.clone(), t.id)).collect();
        if tokens.is_empty() {
            return Ok(AddedTokens::default());
        }
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|t| t.content.as_bytes()))
            .map_err(|e| Error::TooLarge(format!("added tokens: {e}")))?;
        Ok(AddedTokens { tokens, by_text, finder: Some(finder) })
    }

    pub fn id_of(&self, text: &str) -> Option<u32> {
        self.by_text.get(text).copied()
    }

    /// Walks the text: runs between added tokens and the tokens, in order. Flags as in the Hugging Face library:
    /// `lstrip`/`rstrip` swallow white space beside the token, `single_word` wants no word character beside it.
    pub fn split<'a>(&self, text: &'a str, mut f: impl FnMut(Piece<'a>) -> Res<()>) -> Res<()> {
        let mut done = 0;
        if let Some(finder) = &self.finder {
            for m in finder.find_iter(text) {
                let token = &self.tokens[m.pattern().as_usize()];
                let (mut start, mut end) = (m.start(), m.end());
                if start < done {
                    continue; // swallowed by the token before
                }
                if token.single_word && (ends_in_word(&text[..start]) || starts_with_word(&text[end..])) {
                    continue;
                }
                if token.lstrip {
                    start = text[..start].trim_end().len().max(done);
                }
                if token.rstrip {
                    end = text.len() - text[end..].trim_start().len();
                }
                if start > done {
                    f(Piece::Text(&text[done..start]))?;
                }
                f(Piece::Token(token.id))?;
                done = end;
            }
        }
        if done < text.len() {
            f(Piece::Text(&text[done..]))?;
        }
        Ok(())
    }
}

/// The `\w` of regular expressions: letters, marks, digits, connectors and joiners.
fn is_word(c: char) -> bool {
    regex_syntax::is_word_character(c)
}

fn ends_in_word(s: &str) -> bool {
    s.chars().next_back().is_some_and(is_word)
}

fn starts_with_word(s: &str) -> bool {
    s.chars().next().is_some_and(is_word)
}
