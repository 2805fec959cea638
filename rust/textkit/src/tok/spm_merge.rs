//! SentencePiece BPE of one run of text: the neighbours with the best score are merged until none has a piece.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use super::spm_model::{Kind, Model};

const NONE: u32 = u32::MAX;

/// Buffers that are used again from word to word.
#[derive(Default)]
pub struct Work {
    symbols: Vec<Symbol>,
    heap: BinaryHeap<Candidate>,
}

/// One symbol of the text while it is merged.
struct Symbol {
    start: u32,
    end: u32, // start == end: merged into its left neighbour
    prev: u32,
    next: u32,
    frozen: bool,
}

struct Candidate {
    score: f32,
    left: u32,
    right: u32,
    size: u32,
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Candidate {}
impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Candidate {
    /// Best score first, then the leftmost.
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

pub struct Merging<'m, 't> {
    model: &'m Model,
    text: &'t str,
    work: &'m mut Work,
    /// How pieces marked as unused are taken apart again.
    unused: HashMap<&'t str, (&'t str, &'t str)>,
}

impl<'m, 't> Merging<'m, 't> {
    /// `work`: any state; it is emptied.
    pub fn of(model: &'m Model, text: &'t str, work: &'m mut Work) -> Merging<'m, 't> {
        work.symbols.clear();
        work.heap.clear();
        let symbols = &mut work.symbols;
        let mut at = 0;
        while at < text.len() {
            let user = model.user_defined_prefix(&text[at..]);
            let n = if user > 0 { user } else { text[at..].chars().next().map_or(1, char::len_utf8) };
            let i = symbols.len() as u32;
            let next = if at + n >= text.len() { NONE } else { i + 1 };
            symbols.push(Symbol { start: at as u32, end: (at + n) as u32, prev: i.wrapping_sub(1), next, frozen: user > 0 });
            at += n;
        }
        Merging { model, text, work, unused: HashMap::new() }
    }

    /// The pieces of the text with their ids, in order.
    pub fn run(mut self, mut piece: impl FnMut(&'t str, u32)) {
        for i in 1..self.work.symbols.len() as u32 {
            self.offer(i - 1, i);
        }
        while let Some(top) = self.work.heap.pop() {
            let symbols = &mut self.work.symbols;
            let (l, r) = (top.left as usize, top.right as usize);
            let (left_len, right_len) = (symbols[l].end - symbols[l].start, symbols[r].end - symbols[r].start);
            if left_len == 0 || right_len == 0 || left_len + right_len != top.size {
                continue;
            }
            symbols[l].end = symbols[r].end;
            let (prev, next) = (symbols[l].prev, symbols[r].next);
            symbols[l].next = next;
            if next != NONE {
                symbols[next as usize].prev = top.left;
            }
            symbols[r].end = symbols[r].start;
            self.offer(prev, top.left);
            self.offer(top.left, next);
        }
        let mut at = 0u32;
        while at != NONE {
            let s = &self.work.symbols[at as usize];
            self.resegment(&self.text[s.start as usize..s.end as usize], &mut piece);
            at = s.next;
        }
    }

    /// Makes a candidate of two neighbours that are a piece together.
    fn offer(&mut self, left: u32, right: u32) {
        let s = &self.work.symbols;
        if left == NONE || right == NONE || s[left as usize].frozen || s[right as usize].frozen {
            return;
        }
        let (a, b, text) = (&s[left as usize], &s[right as usize], self.text);
        let whole = &text[a.start as usize..b.end as usize];
        if let Some(&id) = self.model.by_text.get(whole.as_bytes()) {
            let p = &self.model.pieces[id as usize];
            self.work.heap.push(Candidate { score: p.score, left, right, size: whole.len() as u32 });
            if p.kind == Kind::Unused {
                self.unused.insert(whole, (&text[a.start as usize..a.end as usize], &text[b.start as usize..b.end as usize]));
            }
        }
    }

    fn resegment(&self, piece: &'t str, out: &mut impl FnMut(&'t str, u32)) {
        let mut stack = vec![piece];
        while let Some(p) = stack.pop() {
            let id = self.model.id_of(p).unwrap_or(self.model.unk_id);
            match self.unused.get(p) {
                Some(&(a, b)) if self.model.pieces[id as usize].kind == Kind::Unused => stack.extend([b, a]),
                _ => out(p, id),
            }
        }
    }
}
