//! Byte-level BPE over our own tables. Gives what the Hugging Face model gives, several times faster.

use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use unicode_normalization_alignments::UnicodeNormalization;

use super::bounds::Bounds;
use super::pretok::Pattern;
use super::{corrupt, Res};

/// A multiplicative hash: keys are pairs of ids and short byte strings from a file that is trusted as far as its size goes.
#[derive(Default)]
pub struct FastHasher(u64);

impl Hasher for FastHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word) ^ chunk.len() as u64);
        }
    }
    fn write_u8(&mut self, v: u8) {
        self.write_u64(v as u64);
    }
    fn write_usize(&mut self, v: usize) {
        self.write_u64(v as u64);
    }
    fn write_u64(&mut self, v: u64) {
        let x = (self.0.rotate_left(5) ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = x ^ (x >> 29);
    }
    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0xff51_afd7_ed55_8ccd)
    }
}

pub type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FastHasher>>;

pub struct ByteBpe {
    pub pattern: Pattern,
    pub nfc: bool,
    /// A pre-token that is a vocabulary entry is taken whole.
    pub ignore_merges: bool,
    vocab: FastMap<Box<[u8]>, u32>,
    /// (left id, right id) -> (rank, merged id)
    merges: FastMap<u64, (u32, u32)>,
    byte_ids: [u32; 256],
}

fn pair(a: u32, b: u32) -> u64 {
    (a as u64) << 32 | b as u64
}

const NONE: u32 = u32::MAX;
/// Canonical composition makes at most 7 bytes of a text 2 (U+1FBE, U+0308, U+0301: U+0390).
pub const NFC_SHRINKS: usize = 4;

/// One symbol of a word while it is merged: ids in a linked list.
#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    prev: u32,
    next: u32,
}

impl ByteBpe {
    pub fn new(pattern: Pattern, vocab: FastMap<Box<[u8]>, u32>) -> Res<ByteBpe> {
        let mut byte_ids = [NONE; 256];
        for b in 0..=255u8 {
            match vocab.get(&[b][..]) {
                Some(&id) => byte_ids[b as usize] = id,
                None => return corrupt(format!("the vocabulary lacks the byte 0x{b:02X}")),
            }
        }
        Ok(ByteBpe { pattern, nfc: false, ignore_merges: false, vocab, merges: FastMap::default(), byte_ids })
    }

    pub fn vocab(&self) -> &FastMap<Box<[u8]>, u32> {
        &self.vocab
    }

    pub fn id_of(&self, bytes: &[u8]) -> Option<u32> {
        self.vocab.get(bytes).copied()
    }

    pub fn reserve_merges(&mut self, n: usize) {
        self.merges.reserve(n);
    }

    /// The merge of two tokens, given as bytes; a later rank of the same pair wins, as in the Hugging Face loader.
    pub fn add_merge(&mut self, left: &[u8], right: &[u8], rank: u32) -> Res<()> {
        let mut whole = Vec::with_capacity(left.len() + right.len());
        whole.extend_from_slice(left);
        whole.extend_from_slice(right);
        match (self.id_of(left), self.id_of(right), self.id_of(&whole)) {
            (Some(a), Some(b), Some(c)) => {
                self.merges.insert(pair(a, b), (rank, c));
                Ok(())
            }
            _ => corrupt(format!("merge {rank} uses a token that is not in the vocabulary")),
        }
    }

    /// Every way of cutting a token in two known ones is a merge; the token's id is its rank (tiktoken).
    pub fn merges_from_ranks(&mut self) {
        let mut merges: FastMap<u64, (u32, u32)> = FastMap::default();
        merges.reserve(self.vocab.len() * 5 / 2);
        for (bytes, &id) in &self.vocab {
            for cut in 1..bytes.len() {
                if let (Some(a), Some(b)) = (self.id_of(&bytes[..cut]), self.id_of(&bytes[cut..])) {
                    merges.insert(pair(a, b), (id, id));
                }
            }
        }
        self.merges = merges;
    }

    pub fn encode(&self, text: &str, bounds: &Bounds, ids: &mut Vec<u32>) -> Res<()> {
        let mut scratch = Vec::new();
        let mut word = |word: &str| {
            bounds.check_run(word.len(), ids.len())?;
            self.word(word.as_bytes(), &mut scratch, ids);
            bounds.check(ids.len())
        };
        if self.nfc && !text.is_ascii() {
            bounds.check_run(text.len() / NFC_SHRINKS, 0)?;
            let normal: String = text.nfc().map(|(c, _)| c).collect();
            self.pattern.split(&normal, word)
        } else {
            self.pattern.split(text, &mut word)
        }
    }

    fn merge_of(&self, a: u32, b: u32) -> Option<(u32, u32)> {
        self.merges.get(&pair(a, b)).copied()
    }

    fn word(&self, word: &[u8], scratch: &mut Vec<(u32, u32)>, ids: &mut Vec<u32>) {
        if word.len() == 1 {
            return ids.push(self.byte_ids[word[0] as usize]);
        }
        if self.ignore_merges {
            if let Some(id) = self.id_of(word) {
                return ids.push(id);
            }
        }
        if word.len() <= 64 {
            self.short_word(word, scratch, ids)
        } else {
            self.long_word(word, ids)
        }
    }

    /// Lowest rank first by scanning: best for short words. `symbols` holds (id, rank of the merge with the next).
    fn short_word(&self, word: &[u8], symbols: &mut Vec<(u32, u32)>, ids: &mut Vec<u32>) {
        symbols.clear();
        let rank = |a: u32, b: u32| self.merge_of(a, b).map_or(NONE, |m| m.0);
        for (i, &b) in word.iter().enumerate() {
            let id = self.byte_ids[b as usize];
            let with_next = word.get(i + 1).map_or(NONE, |&n| rank(id, self.byte_ids[n as usize]));
            symbols.push((id, with_next));
        }
        loop {
            let mut best = (NONE, 0);
            for (i, s) in symbols.iter().enumerate() {
                if s.1 < best.0 {
                    best = (s.1, i);
                }
            }
            if best.0 == NONE {
                break;
            }
            let at = best.1;
            let Some((_, merged)) = self.merge_of(symbols[at].0, symbols[at + 1].0) else { break };
            symbols[at].0 = merged;
            symbols.remove(at + 1);
            symbols[at].1 = symbols.get(at + 1).map_or(NONE, |n| rank(merged, n.0));
            if at > 0 {
                symbols[at - 1].1 = rank(symbols[at - 1].0, merged);
            }
        }
        ids.extend(symbols.iter().map(|s| s.0));
    }

    /// The same with a heap: n log n for words of any length.
    fn long_word(&self, word: &[u8], ids: &mut Vec<u32>) {
        use std::cmp::Reverse;
        let last = word.len() - 1;
        let mut symbols: Vec<Symbol> = Vec::with_capacity(word.len());
        for (i, &b) in word.iter().enumerate() {
            let next = if i == last { NONE } else { i as u32 + 1 };
            symbols.push(Symbol { id: self.byte_ids[b as usize], prev: (i as u32).wrapping_sub(1), next });
        }
        // (rank, position, left id, right id): the ids tell whether the entry is still true.
        let mut heap: BinaryHeap<Reverse<(u32, u32, u32, u32)>> = BinaryHeap::with_capacity(word.len());
        for (i, s) in symbols.windows(2).enumerate() {
            if let Some((rank, _)) = self.merge_of(s[0].id, s[1].id) {
                heap.push(Reverse((rank, i as u32, s[0].id, s[1].id)));
            }
        }
        while let Some(Reverse((_, at, left, right))) = heap.pop() {
            let here = symbols[at as usize];
            if here.id != left || here.next == NONE || symbols[here.next as usize].id != right {
                continue;
            }
            let Some((_, merged)) = self.merge_of(left, right) else { continue };
            let after = symbols[here.next as usize].next;
            symbols[here.next as usize].id = NONE;
            symbols[at as usize].id = merged;
            symbols[at as usize].next = after;
            if after != NONE {
                symbols[after as usize].prev = at;
                if let Some((rank, _)) = self.merge_of(merged, symbols[after as usize].id) {
                    heap.push(Reverse((rank, at, merged, symbols[after as usize].id)));
                }
            }
            if here.prev != NONE {
                let before = symbols[here.prev as usize].id;
                if let Some((rank, _)) = self.merge_of(before, merged) {
                    heap.push(Reverse((rank, here.prev, before, merged)));
                }
            }
        }
        let mut at = 0;
        while at != NONE {
            ids.push(symbols[at as usize].id);
            at = symbols[at as usize].next;
        }
    }
}
