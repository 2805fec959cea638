//! How far one answer has come in its grammar.

use std::sync::Arc;

use llguidance::Matcher as Inner;

use super::compile::{of_llguidance, Compiled, LaneId};
use super::env::JsonBias;
use super::place::Place;
use super::{Error, Res};

#[derive(Clone, Copy, Default)]
struct Step {
    /// A hash of all ids up to here.
    path: u128,
    place: Place,
}

pub struct Matcher {
    compiled: Arc<Compiled>,
    inner: Inner,
    lane: LaneId,
    /// Behind every id so far.
    steps: Vec<Step>,
    /// Of JSON: how its masks are computed.
    bias: Option<Arc<JsonBias>>,
}

impl Drop for Matcher {
    fn drop(&mut self) {
        self.compiled.end(self.lane);
    }
}

impl Matcher {
    pub fn new(compiled: Arc<Compiled>) -> Matcher {
        let (mut parser, lane) = compiled.start();
        let bias = if compiled.json { JsonBias::new(&compiled.env) } else { None };
        if let Some(bias) = &bias {
            parser.bias_computer = bias.clone();
        }
        Matcher { compiled, inner: Inner::new(Ok(parser)), lane, steps: Vec::new(), bias }
    }

    /// An error is final: the lexer that this request shares may be at its limit or broken.
    fn check<T>(&self, result: anyhow::Result<T>) -> Res<T> {
        result.map_err(|e| {
            self.compiled.renew(self.lane);
            match of_llguidance(&e) {
                Error::TooLarge(m) => Error::TooLarge(m),
                other => Error::Invalid(other.message().to_string()),
            }
        })
    }

    /// The ids that may come next: bit id % 32 of word id / 32. Words beyond the vocabulary are zero.
    pub fn mask(&mut self, words: &mut [u32]) -> Res<()> {
        let ids = self.compiled.env.ids;
        if words.len() < ids.div_ceil(32) {
            return Err(Error::Internal(format!("a mask of {} words is too short for {ids} ids", words.len())));
        }
        let Step { path, place } = self.step();
        let shared = !self.compiled.env.plain;
        if shared && !self.inner.is_error() && self.compiled.masks.get(path, words) {
            return Ok(());
        }
        if let Some(bias) = &self.bias {
            bias.set_in_string(place.is_plain_string());
        }
        let mask = self.inner.compute_mask_or_eos();
        let mask = self.check(mask)?;
        let from = &mask.as_slice()[..ids.div_ceil(32)];
        words[..from.len()].copy_from_slice(from);
        words[from.len()..].fill(0);
        if self.bias.is_some() {
            self.compiled.env.spaces.bound(place, words);
        }
        if shared {
            self.compiled.masks.put(path, &words[..ids.div_ceil(32)]);
        }
        Ok(())
    }

    /// Masks of the places before, between and behind `ids`, `stride` words each, until an id is refused or the grammar
    /// ends. The number of masks filled. The matcher stays where it is.
    pub fn masks(&mut self, ids: &[u32], stride: usize, words: &mut [u32]) -> Res<usize> {
        if stride == 0 || words.len() / stride <= ids.len() {
            return Err(Error::Internal("too little memory for the masks".into()));
        }
        let mut filled = 0;
        let mut taken = 0;
        loop {
            self.mask(&mut words[filled * stride..(filled + 1) * stride])?;
            filled += 1;
            if taken == ids.len() || self.inner.is_stopped() {
                break;
            }
            let id = ids[taken] as usize;
            let row = &words[(filled - 1) * stride..filled * stride];
            if row.get(id / 32).is_none_or(|w| w >> (id % 32) & 1 == 0) {
                break;
            }
            self.consume(&ids[taken..taken + 1])?;
            taken += 1;
        }
        self.roll_back(taken)?;
        Ok(filled)
    }

    fn step(&self) -> Step {
        self.steps.last().copied().unwrap_or_default()
    }

    /// The step behind one more id; false: it brings too much white space.
    fn next(&self, from: Step, id: u32) -> (Step, bool) {
        let mut to = Step { path: self.compiled.masks.extend(from.path, id), place: from.place };
        let trie = self.compiled.env.factory.tok_env().tok_trie();
        let text = (id as usize) < trie.vocab_size() && !trie.is_special_token(id);
        let fits = self.bias.is_none() || !text || to.place.step(trie.token(id));
        (to, fits)
    }

    pub fn consume(&mut self, ids: &[u32]) -> Res<()> {
        for &id in ids {
            let (step, fits) = self.next(self.step(), id);
            if !fits {
                return Err(Error::Invalid("the answer has more white space than is allowed".into()));
            }
            self.steps.push(step);
        }
        if ids.is_empty() {
            return Ok(());
        }
        let done = self.inner.consume_tokens(ids);
        self.check(done)
    }

    /// How many of the ids the grammar takes from here; consumes none.
    pub fn accepts(&mut self, ids: &[u32]) -> Res<usize> {
        let mut step = self.step();
        let mut most = 0;
        while most < ids.len() {
            let (next, fits) = self.next(step, ids[most]);
            if !fits {
                break;
            }
            step = next;
            most += 1;
        }
        let done = self.inner.validate_tokens(&ids[..most]);
        self.check(done)
    }

    pub fn roll_back(&mut self, count: usize) -> Res<()> {
        if count == 0 {
            return Ok(());
        }
        let done = self.inner.rollback(count);
        self.check(done)?;
        self.steps.truncate(self.steps.len().saturating_sub(count));
        Ok(())
    }

    /// Ids that have to come next whatever is sampled.
    pub fn forced(&mut self) -> Vec<u32> {
        if self.inner.is_stopped() {
            return Vec::new();
        }
        self.inner.compute_ff_tokens()
    }

    pub fn is_accepting(&mut self) -> bool {
        self.is_stopped() || self.inner.is_accepting().unwrap_or(false)
    }

    /// Nothing but an end token may follow.
    pub fn is_stopped(&self) -> bool {
        self.inner.is_stopped() && !self.inner.is_error()
    }

    pub fn is_failed(&self) -> bool {
        self.inner.is_error()
    }
}
