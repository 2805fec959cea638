//! Masks that requests of one grammar have computed, by the ids that led to them.

use std::collections::hash_map::RandomState;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Memory of one grammar's masks, in bytes.
const MOST: usize = 1 << 20;
/// A mask of fewer ids is kept as their list.
const FEW: usize = 256;

#[derive(Clone)]
enum Mask {
    Few(Arc<[u32]>),
    Many(Arc<[u32]>),
}

#[derive(Default)]
struct Inner {
    by_path: HashMap<u128, Mask>,
    /// Long masks are few, and shared.
    by_content: HashMap<u64, Arc<[u32]>>,
    bytes: usize,
}

/// What follows the same ids is the same, so a mask is found by a hash of 128 bits with a key that nobody outside knows.
pub struct MaskCache {
    keys: [RandomState; 2],
    inner: Mutex<Inner>,
    full: AtomicBool,
}

impl MaskCache {
    pub fn new() -> MaskCache {
        MaskCache { keys: Default::default(), inner: Mutex::default(), full: AtomicBool::new(false) }
    }

    /// The path behind `path` and one more id.
    pub fn extend(&self, path: u128, id: u32) -> u128 {
        let half = |key: &RandomState| u128::from(key.hash_one((path, id)));
        half(&self.keys[0]) << 64 | half(&self.keys[1])
    }

    /// Fills `words` with the mask of the path, if it is known.
    pub fn get(&self, path: u128, words: &mut [u32]) -> bool {
        let found = self.inner.lock().unwrap_or_else(PoisonError::into_inner).by_path.get(&path).cloned();
        match found {
            None => return false,
            Some(Mask::Few(ids)) => {
                words.fill(0);
                for &id in ids.iter() {
                    words[id as usize / 32] |= 1 << (id % 32);
                }
            }
            Some(Mask::Many(from)) => {
                words[..from.len()].copy_from_slice(&from);
                words[from.len()..].fill(0);
            }
        }
        true
    }

    /// Keeps the mask while there is room.
    pub fn put(&self, path: u128, words: &[u32]) {
        if self.full.load(Ordering::Relaxed) {
            return;
        }
        let few = few_ids(words);
        let content = if few.is_none() { content_hash(words) } else { 0 };
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let known = inner.by_content.get(&content).filter(|known| ***known == *words).cloned();
        let (mask, bytes) = match (few, known) {
            (Some(ids), _) => {
                let bytes = 64 + ids.len() * 4;
                (Mask::Few(ids), bytes)
            }
            (None, Some(mask)) => (Mask::Many(mask), 64),
            (None, None) => (Mask::Many(words.into()), 128 + words.len() * 4),
        };
        if inner.bytes + bytes > MOST {
            self.full.store(true, Ordering::Relaxed);
            return;
        }
        if let Mask::Many(mask) = &mask {
            inner.by_content.insert(content, mask.clone());
        }
        inner.bytes += bytes;
        inner.by_path.insert(path, mask);
    }

    pub fn bytes(&self) -> usize {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }
}

/// The ids of the mask, if they are few. Most words are zero then, else the loop ends soon.
fn few_ids(words: &[u32]) -> Option<Arc<[u32]>> {
    let mut ids = Vec::with_capacity(FEW);
    for (at, &word) in words.iter().enumerate() {
        let mut rest = word;
        while rest != 0 {
            if ids.len() == FEW {
                return None;
            }
            ids.push(at as u32 * 32 + rest.trailing_zeros());
            rest &= rest - 1;
        }
    }
    Some(ids.into())
}

/// Only finds candidates: contents are compared.
fn content_hash(words: &[u32]) -> u64 {
    words.iter().fold(0u64, |h, &w| (h.rotate_left(5) ^ u64::from(w)).wrapping_mul(0x517c_c1b7_2722_0a95))
}

impl Default for MaskCache {
    fn default() -> Self {
        MaskCache::new()
    }
}
