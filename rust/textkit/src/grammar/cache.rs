//! Masks that requests of one grammar have computed, by the ids that led to them.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
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
    by_content: HashMap<u128, Arc<[u32]>>,
    bytes: usize,
}

/// What follows the same ids is the same, so a mask is found by a hash of 128 bits with a key that nobody outside knows.
pub struct MaskCache {
    keys: [std::collections::hash_map::RandomState; 2],
    inner: Mutex<Inner>,
}

impl MaskCache {
    pub fn new() -> MaskCache {
        MaskCache { keys: Default::default(), inner: Mutex::default() }
    }

    /// The path behind `path` and one more id.
    pub fn extend(&self, path: u128, id: u32) -> u128 {
        self.hash(path, &[id])
    }

    fn hash(&self, path: u128, words: &[u32]) -> u128 {
        let half = |key: &std::collections::hash_map::RandomState| {
            let mut h = key.build_hasher();
            h.write_u128(path);
            // SAFETY: u32 has no padding and its alignment is above that of bytes.
            h.write(unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), words.len() * 4) });
            u128::from(h.finish())
        };
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
        let count: usize = words.iter().map(|w| w.count_ones() as usize).sum();
        let few: Option<Arc<[u32]>> = (count <= FEW).then(|| {
            let mut ids = Vec::with_capacity(count);
            for (at, &word) in words.iter().enumerate() {
                let mut rest = word;
                while rest != 0 {
                    ids.push(at as u32 * 32 + rest.trailing_zeros());
                    rest &= rest - 1;
                }
            }
            ids.into()
        });
        let content = if few.is_none() { self.hash(0, words) } else { 0 };
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let known = inner.by_content.get(&content).cloned();
        let (mask, bytes) = match (few, known) {
            (Some(ids), _) => (Mask::Few(ids), 64 + count * 4),
            (None, Some(mask)) => (Mask::Many(mask), 64),
            (None, None) => (Mask::Many(words.into()), 128 + words.len() * 4),
        };
        if inner.bytes + bytes > MOST {
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

impl Default for MaskCache {
    fn default() -> Self {
        MaskCache::new()
    }
}
