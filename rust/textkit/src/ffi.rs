//! The C border: pointers become slices, results become codes, panics stop here. What a caller owes to each function
//! (its `# Safety`) stands in include/textkit.h.
#![allow(clippy::missing_safety_doc)]

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use crate::jinja::{Fault, Limits, Template};
use crate::tok::{self, hfjson, spm, tiktoken, Options, Tok};

#[repr(C)]
pub struct Buffer<T> {
    data: *mut T,
    size: usize,
    capacity: usize,
}

impl<T> Buffer<T> {
    pub fn from_vec(mut v: Vec<T>) -> Buffer<T> {
        let out = Buffer { data: v.as_mut_ptr(), size: v.len(), capacity: v.capacity() };
        std::mem::forget(v);
        out
    }

    /// # Safety
    /// `buffer` is null, zeroed or was filled by this library and not freed since.
    unsafe fn free(buffer: *mut Buffer<T>) {
        if let Some(b) = buffer.as_mut() {
            if !b.data.is_null() {
                drop(Vec::from_raw_parts(b.data, b.size, b.capacity));
            }
            *b = Buffer { data: std::ptr::null_mut(), size: 0, capacity: 0 };
        }
    }
}

#[repr(C)]
pub struct Table {
    blob: *const u8,
    blob_size: usize,
    offsets: *const u32,
    flags: *const u8,
    ids: usize,
    sentencepiece: i32,
    strip_first_space: i32,
}

#[repr(C)]
pub struct TemplateLimits {
    steps: u64,
    depth: u32,
    output_bytes: usize,
    memory_bytes: usize,
}

const OK: i32 = 0;
const CORRUPT: i32 = 1;
pub const TOO_LARGE: i32 = 2;
pub const UNSUPPORTED: i32 = 3;
pub const INVALID: i32 = 4;
pub const INTERNAL: i32 = 5;
const TOO_MANY: i32 = 6;
const CANCELLED: i32 = 7;

pub type Failure = (i32, String);

fn of_tok(e: tok::Error) -> Failure {
    match e {
        tok::Error::Corrupt(m) => (CORRUPT, m),
        tok::Error::TooLarge(m) => (TOO_LARGE, m),
        tok::Error::Unsupported(m) => (UNSUPPORTED, m),
        tok::Error::Text(m) => (INVALID, m),
        tok::Error::TooMany => (TOO_MANY, "the text has more tokens than are of use".into()),
        tok::Error::Cancelled => (CANCELLED, "cancelled".into()),
    }
}

fn of_fault(f: Fault) -> Failure {
    match f {
        Fault::Bad(m) => (INVALID, m),
        Fault::Limit(m) => (TOO_LARGE, m),
    }
}

/// # Safety
/// `data` points at `size` readable bytes, or `size` is 0.
unsafe fn bytes<'a>(data: *const u8, size: usize) -> &'a [u8] {
    if size == 0 || data.is_null() {
        return &[];
    }
    std::slice::from_raw_parts(data, size)
}

pub unsafe fn text<'a>(data: *const u8, size: usize) -> Result<&'a str, Failure> {
    std::str::from_utf8(bytes(data, size)).map_err(|_| (INVALID, "the text is not valid UTF-8".to_string()))
}

/// Runs `f`; a failure or a panic becomes a code and a sentence.
pub unsafe fn guard(error: *mut Buffer<u8>, f: impl FnOnce() -> Result<(), Failure>) -> i32 {
    let (code, message) = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => return OK,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let what = panic.downcast_ref::<String>().map(|s| s.as_str()).or(panic.downcast_ref::<&str>().copied());
            (INTERNAL, format!("internal fault in text handling: {}", what.unwrap_or("unknown")))
        }
    };
    if let Some(e) = error.as_mut() {
        *e = Buffer::from_vec(message.into_bytes());
    }
    code
}

#[no_mangle]
pub unsafe extern "C" fn tk_bytes_free(b: *mut Buffer<u8>) {
    Buffer::free(b)
}

#[no_mangle]
pub unsafe extern "C" fn tk_ids_free(b: *mut Buffer<u32>) {
    Buffer::free(b)
}

#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_new(
    kind: i32,
    first: *const u8,
    first_size: usize,
    second: *const u8,
    second_size: usize,
    options: *const u8,
    options_size: usize,
    out: *mut *const Tok,
    error: *mut Buffer<u8>,
) -> i32 {
    guard(error, || {
        let options = Options::parse(text(options, options_size)?).map_err(of_tok)?;
        let utf8 = |data, size| text(data, size).map_err(|_| (CORRUPT, "the file is not valid UTF-8".to_string()));
        let tok = match kind {
            0 => hfjson::load(utf8(first, first_size)?, &options),
            1 => tiktoken::from_vocab_merges(utf8(first, first_size)?, utf8(second, second_size)?, &options),
            2 => tiktoken::from_ranks(utf8(first, first_size)?, &options),
            3 => spm::load(bytes(first, first_size), &options),
            _ => return Err((INTERNAL, "unknown tokenizer kind".into())),
        };
        // Grammars keep a share of it.
        *out = Arc::into_raw(Arc::new(tok.map_err(of_tok)?));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_free(t: *const Tok) {
    if !t.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Arc::from_raw(t))));
    }
}

#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_encode(
    t: *const Tok,
    data: *const u8,
    size: usize,
    add_special: i32,
    most: usize,
    cancelled: *const std::sync::atomic::AtomicBool,
    out: *mut Buffer<u32>,
    error: *mut Buffer<u8>,
) -> i32 {
    guard(error, || {
        let ids = (*t).encode_within(text(data, size)?, add_special != 0, most, cancelled.as_ref()).map_err(of_tok)?;
        *out = Buffer::from_vec(ids);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_id(t: *const Tok, data: *const u8, size: usize) -> i64 {
    let found = catch_unwind(AssertUnwindSafe(|| text(data, size).ok().and_then(|s| (*t).token_to_id(s))));
    found.ok().flatten().map_or(-1, |id| id as i64)
}

#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_token(t: *const Tok, id: u32, out: *mut Buffer<u8>) -> i32 {
    guard(std::ptr::null_mut(), || {
        *out = Buffer::from_vec((*t).id_to_token(id).unwrap_or_default().into_bytes());
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_table(t: *const Tok, out: *mut Table) {
    let (table, rules) = (&(*t).table, &(*t).rules);
    *out = Table {
        blob: table.blob.as_ptr(),
        blob_size: table.blob.len(),
        offsets: table.offsets.as_ptr(),
        flags: table.flags.as_ptr(),
        ids: table.flags.len(),
        sentencepiece: rules.sentencepiece as i32,
        strip_first_space: rules.strip_first_space as i32,
    };
}

#[no_mangle]
pub unsafe extern "C" fn tk_template_new(data: *const u8, size: usize, out: *mut *mut Template, error: *mut Buffer<u8>) -> i32 {
    guard(error, || {
        let t = Template::compile(text(data, size)?).map_err(of_fault)?;
        *out = Box::into_raw(Box::new(t));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_template_free(t: *mut Template) {
    if !t.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(t))));
    }
}

#[no_mangle]
pub unsafe extern "C" fn tk_template_render(
    t: *const Template,
    variables: *const u8,
    size: usize,
    unix_seconds: i64,
    limits: *const TemplateLimits,
    out: *mut Buffer<u8>,
    error: *mut Buffer<u8>,
) -> i32 {
    guard(error, || {
        let l = &*limits;
        let limits = Limits { steps: l.steps, depth: l.depth, output: l.output_bytes, memory: l.memory_bytes };
        let prompt = (*t).render(text(variables, size)?, unix_seconds, limits).map_err(of_fault)?;
        *out = Buffer::from_vec(prompt.into_bytes());
        Ok(())
    })
}
