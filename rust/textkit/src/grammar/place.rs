//! Where a text of JSON stands, byte by byte: what the masks of JSON grammars need beside the parser.

use toktrie::{TokTrie, TokenId};

use super::env::WHITE_SPACE;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub in_string: bool,
    escaped: bool,
    /// White space between tokens of JSON up to here, saturating.
    run: u8,
}

fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\n' | b'\r' | b'\t')
}

impl Place {
    /// Behind `bytes`; false when too much white space was on the way.
    pub fn step(&mut self, bytes: &[u8]) -> bool {
        let mut fits = true;
        for &b in bytes {
            if self.in_string {
                match b {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            self.run = if is_space(b) { self.run.saturating_add(1) } else { 0 };
            fits = fits && usize::from(self.run) <= WHITE_SPACE;
            self.in_string = b == b'"';
        }
        fits
    }

    pub fn is_plain_string(&self) -> bool {
        self.in_string && !self.escaped
    }
}

/// Some JSON text may go on with these bytes in the middle of a string.
pub fn may_follow_in_string(bytes: &[u8]) -> bool {
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                let rest = &bytes[at + 1..];
                let next = rest.iter().find(|b| !is_space(**b));
                return next.is_none_or(|b| matches!(b, b',' | b':' | b']' | b'}'));
            }
            b'\\' => {
                if bytes.get(at + 1).is_some_and(|b| !b"\"\\/bfnrtu".contains(b)) {
                    return false;
                }
                at += 2;
            }
            0..=0x1f | 0x7f => return false,
            _ => at += 1,
        }
    }
    true
}

/// Tokens that may bring more white space than is allowed.
pub struct Spaces {
    /// Ids by the white space that they begin with, the most first.
    leading: Vec<(usize, TokenId)>,
    /// Ids that bring too much wherever they begin outside or inside of a string.
    outside: Vec<TokenId>,
    inside: Vec<TokenId>,
}

impl Spaces {
    pub fn new(trie: &TokTrie) -> Spaces {
        let mut s = Spaces { leading: Vec::new(), outside: Vec::new(), inside: Vec::new() };
        for id in 0..trie.vocab_size() as TokenId {
            let bytes = trie.token(id);
            if bytes.is_empty() || trie.is_special_token(id) {
                continue;
            }
            let lead = bytes.iter().take_while(|b| is_space(**b)).count();
            if lead > 0 {
                s.leading.push((lead, id));
            }
            if !Place::default().step(bytes) {
                s.outside.push(id);
            }
            if !(Place { in_string: true, ..Place::default() }).step(bytes) {
                s.inside.push(id);
            }
        }
        s.leading.sort_unstable_by(|a, b| b.cmp(a));
        s
    }

    /// Takes the ids away that would bring too much.
    pub fn bound(&self, place: Place, words: &mut [u32]) {
        let mut clear = |id: TokenId| words[id as usize / 32] &= !(1 << (id % 32));
        if place.in_string {
            // Behind an escape's first half a token ends the string later than these say, if at all; rare and harmless.
            self.inside.iter().for_each(|&id| clear(id));
            return;
        }
        self.outside.iter().for_each(|&id| clear(id));
        let room = WHITE_SPACE.saturating_sub(usize::from(place.run));
        self.leading.iter().take_while(|(lead, _)| *lead > room).for_each(|&(_, id)| clear(id));
    }
}
