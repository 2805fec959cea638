//! What one encode call may cost.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Error, Res};

pub struct Bounds<'a> {
    /// Most ids that are of use; a text with more is refused as soon as that is known.
    pub ids: usize,
    /// Bytes of the longest token.
    pub longest: usize,
    /// Set by another thread when nobody waits for the ids any more.
    pub cancelled: Option<&'a AtomicBool>,
}

impl Bounds<'_> {
    /// After every word: `ids` so far.
    pub fn check(&self, ids: usize) -> Res<()> {
        if ids > self.ids {
            return Err(Error::TooMany);
        }
        match self.cancelled {
            Some(flag) if flag.load(Ordering::Relaxed) => Err(Error::Cancelled),
            _ => Ok(()),
        }
    }

    /// Before work over `bytes` bytes, all of which tokens will hold: whether the longest tokens could, behind `ids` ids.
    pub fn check_run(&self, bytes: usize, ids: usize) -> Res<()> {
        self.check(ids)?;
        if bytes > (self.ids - ids).saturating_mul(self.longest) {
            return Err(Error::TooMany);
        }
        Ok(())
    }
}
