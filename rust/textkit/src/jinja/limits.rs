//! Limits of templates in one place: those a caller sets, those of the language, and what work costs in steps.

use super::eval::Eval;
use super::value::{live_bytes, Fault, Res};

/// Of one render. A step is about 50 ns of work.
#[derive(Clone, Copy)]
pub struct Limits {
    pub steps: u64,
    pub depth: u32,
    pub output: usize,
    pub memory: usize,
}

/// Tokens of one `{{ }}` or `{% %}`. A longer one is no template but an attack on the parser's stack.
pub const MAX_TAG_TOKENS: usize = 20_000;
/// Nesting of the syntax tree.
pub const MAX_TREE_DEPTH: usize = 1500;
/// Nesting of containers is bounded, so that walking or dropping a value never recurses deeply.
pub const MAX_VALUE_DEPTH: u32 = 200;
/// Scopes that macros hold on to.
pub const MAX_MACRO_SCOPES: usize = 2000;
/// Width and precision of a format, and of `tojson(indent=...)`.
pub const MAX_FORMAT_WIDTH: usize = 10_000;
pub const MAX_JSON_INDENT: usize = 64;
/// Chunks of `batch` and `slice`.
pub const MAX_CHUNKS: i128 = 1_000_000;

/// Bytes per step: copied, searched or written with a look at each, and changed character by character.
pub const COPIED_PER_STEP: usize = 64;
pub const SCANNED_PER_STEP: usize = 16;
pub const CHANGED_PER_STEP: usize = 4;
/// Names or keys that are compared one by one.
pub const COMPARED_PER_STEP: usize = 16;
/// A small value that is made and dropped.
pub const STEPS_PER_VALUE: u64 = 4;

impl Eval {
    /// Counts work; the unit is about one evaluated node.
    pub fn step(&mut self, n: u64) -> Res<()> {
        self.steps = self.steps.saturating_add(n);
        if self.steps > self.limits.steps {
            return Err(Fault::Limit(format!("the template takes more than {} steps", self.limits.steps)));
        }
        Ok(())
    }

    /// Bytes that are copied.
    pub fn bytes_step(&mut self, bytes: usize) -> Res<()> {
        self.step((bytes / COPIED_PER_STEP) as u64 + 1)
    }

    /// Bytes that are searched, or written with a look at each.
    pub fn scan_step(&mut self, bytes: usize) -> Res<()> {
        self.step((bytes / SCANNED_PER_STEP) as u64 + 1)
    }

    /// Text that is changed character by character.
    pub fn chars_step(&mut self, bytes: usize) -> Res<()> {
        self.step((bytes / CHANGED_PER_STEP) as u64 + 1)
    }

    /// Names or keys that are compared one by one.
    pub fn names_step(&mut self, names: usize) -> Res<()> {
        self.step((names / COMPARED_PER_STEP) as u64)
    }

    /// To be called before `count` small values are made of `bytes` bytes in all.
    pub fn reserve_values(&mut self, count: usize, bytes: usize) -> Res<()> {
        self.reserve(count.saturating_mul(96).saturating_add(bytes))?;
        self.step((count as u64).saturating_mul(STEPS_PER_VALUE))
    }

    /// Checks that `bytes` more may be held.
    pub fn fits(&self, bytes: usize) -> Res<()> {
        let held = (live_bytes() as usize).saturating_add(self.buffered).saturating_add(bytes);
        if held > self.limits.memory {
            return Err(Fault::Limit(format!("the template needs more than {} bytes of memory", self.limits.memory)));
        }
        Ok(())
    }

    /// To be called before `bytes` are made.
    pub fn reserve(&mut self, bytes: usize) -> Res<()> {
        self.fits(bytes)?;
        self.bytes_step(bytes)
    }
}
