//! The C border of grammars; see ffi.rs of the crate. What a caller owes to each
//! function stands in include/textkit_grammar.h.
#![allow(clippy::missing_safety_doc)]

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use super::{compile, Compiled, Env, Error, Kind, Matcher};
use crate::ffi::{guard, text, Buffer, Failure, INTERNAL, INVALID, TOO_LARGE, UNSUPPORTED};
use crate::tok::Tok;

#[repr(C)]
pub struct GrammarLimits {
    text_bytes: usize,
    nodes: usize,
    initial_fuel: u64,
    step_fuel: u64,
    grammar_size: usize,
    lexer_states: usize,
    step_items: usize,
    row_items: usize,
    depth: usize,
    milliseconds: u64,
}

const TIGHT: u32 = 1;
const CLOSED: u32 = 2;
const LENIENT: u32 = 4;

fn of_grammar(e: Error) -> Failure {
    let code = match &e {
        Error::Invalid(_) => INVALID,
        Error::Unsupported(_) => UNSUPPORTED,
        Error::TooLarge(_) => TOO_LARGE,
        Error::Internal(_) => INTERNAL,
    };
    (code, e.message().to_string())
}

unsafe fn give<T>(out: *mut *const T, value: T) {
    *out = Arc::into_raw(Arc::new(value));
}

unsafe fn drop_shared<T>(handle: *const T) {
    if !handle.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Arc::from_raw(handle))));
    }
}

unsafe fn share<T>(handle: *const T) -> Arc<T> {
    Arc::increment_strong_count(handle);
    Arc::from_raw(handle)
}

/// # Safety
/// As the header says; so for all functions below.
#[no_mangle]
pub unsafe extern "C" fn tk_grammar_limits_default(out: *mut GrammarLimits) {
    let l = compile::Limits::default();
    *out = GrammarLimits {
        text_bytes: l.text_bytes,
        nodes: l.nodes,
        initial_fuel: l.initial_fuel,
        step_fuel: l.step_fuel,
        grammar_size: l.grammar_size,
        lexer_states: l.lexer_states,
        step_items: l.step_items,
        row_items: l.row_items,
        depth: l.depth,
        milliseconds: l.time.as_millis() as u64,
    };
}

#[no_mangle]
pub unsafe extern "C" fn tk_grammar_env_new(
    tokenizer: *const Tok,
    ends: *const u32,
    count: usize,
    plain: i32,
    out: *mut *const Env,
    error: *mut Buffer<u8>,
) -> i32 {
    guard(error, || {
        let made = match tokenizer.is_null() {
            true => Env::bytes(),
            false => {
                let ends = if count == 0 { &[] } else { std::slice::from_raw_parts(ends, count) };
                Env::new(share(tokenizer), ends, plain != 0)
            }
        };
        give(out, made.map_err(of_grammar)?);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_grammar_env_free(env: *const Env) {
    drop_shared(env)
}

#[no_mangle]
pub unsafe extern "C" fn tk_grammar_env_ids(env: *const Env) -> usize {
    (*env).ids
}

#[no_mangle]
pub unsafe extern "C" fn tk_grammar_compile(
    env: *const Env,
    kind: i32,
    data: *const u8,
    size: usize,
    flags: u32,
    limits: *const GrammarLimits,
    out: *mut *const Compiled,
    error: *mut Buffer<u8>,
) -> i32 {
    guard(error, || {
        let l = &*limits;
        let limits = compile::Limits {
            text_bytes: l.text_bytes,
            nodes: l.nodes,
            initial_fuel: l.initial_fuel,
            step_fuel: l.step_fuel,
            grammar_size: l.grammar_size,
            lexer_states: l.lexer_states,
            step_items: l.step_items,
            row_items: l.row_items,
            depth: l.depth,
            time: Duration::from_millis(l.milliseconds),
        };
        let options = compile::Options {
            tight: flags & TIGHT != 0,
            closed: flags & CLOSED != 0,
            lenient: flags & LENIENT != 0,
            whole: false,
        };
        let kind = Kind::from_number(kind).ok_or((INTERNAL, "unknown kind of grammar".to_string()))?;
        let made = Compiled::new(share(env), kind, text(data, size)?, options, &limits);
        give(out, made.map_err(of_grammar)?);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_grammar_free(grammar: *const Compiled) {
    drop_shared(grammar)
}

#[no_mangle]
pub unsafe extern "C" fn tk_grammar_bytes(grammar: *const Compiled) -> usize {
    catch_unwind(AssertUnwindSafe(|| (*grammar).bytes())).unwrap_or(usize::MAX)
}

#[no_mangle]
pub unsafe extern "C" fn tk_grammar_warnings(grammar: *const Compiled, out: *mut Buffer<u8>) -> i32 {
    guard(std::ptr::null_mut(), || {
        *out = Buffer::from_vec((*grammar).warnings.join("\n").into_bytes());
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_new(grammar: *const Compiled, out: *mut *mut Matcher, error: *mut Buffer<u8>) -> i32 {
    guard(error, || {
        *out = Box::into_raw(Box::new(Matcher::new(share(grammar))));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_free(matcher: *mut Matcher) {
    if !matcher.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(matcher))));
    }
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_mask(matcher: *mut Matcher, words: *mut u32, count: usize, error: *mut Buffer<u8>) -> i32 {
    guard(error, || (*matcher).mask(std::slice::from_raw_parts_mut(words, count)).map_err(of_grammar))
}

unsafe fn ids<'a>(data: *const u32, count: usize) -> &'a [u32] {
    if count == 0 {
        return &[];
    }
    std::slice::from_raw_parts(data, count)
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_masks(
    matcher: *mut Matcher,
    tokens: *const u32,
    count: usize,
    words: *mut u32,
    stride: usize,
    filled: *mut usize,
    error: *mut Buffer<u8>,
) -> i32 {
    guard(error, || {
        let size = stride.checked_mul(count + 1).ok_or((INTERNAL, "too many masks".to_string()))?;
        let words = std::slice::from_raw_parts_mut(words, size);
        *filled = (*matcher).masks(ids(tokens, count), stride, words).map_err(of_grammar)?;
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_consume(
    matcher: *mut Matcher,
    tokens: *const u32,
    count: usize,
    error: *mut Buffer<u8>,
) -> i32 {
    guard(error, || (*matcher).consume(ids(tokens, count)).map_err(of_grammar))
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_accepts(
    matcher: *mut Matcher,
    tokens: *const u32,
    count: usize,
    taken: *mut usize,
    error: *mut Buffer<u8>,
) -> i32 {
    guard(error, || {
        *taken = (*matcher).accepts(ids(tokens, count)).map_err(of_grammar)?;
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_rollback(matcher: *mut Matcher, count: usize, error: *mut Buffer<u8>) -> i32 {
    guard(error, || (*matcher).roll_back(count).map_err(of_grammar))
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_forced(
    matcher: *mut Matcher,
    out: *mut u32,
    most: usize,
    count: *mut usize,
    error: *mut Buffer<u8>,
) -> i32 {
    guard(error, || {
        let forced = (*matcher).forced();
        let n = forced.len().min(most);
        if n > 0 {
            std::slice::from_raw_parts_mut(out, n).copy_from_slice(&forced[..n]);
        }
        *count = n;
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_state(matcher: *mut Matcher) -> u32 {
    let state = || {
        let m = &mut *matcher;
        u32::from(m.is_accepting()) | u32::from(m.is_stopped()) << 1 | u32::from(m.is_failed()) << 2
    };
    catch_unwind(AssertUnwindSafe(state)).unwrap_or(4)
}
