//! Values of the template language. Everything is immutable but namespaces; every string and container is metered, so that
//! a template can never hold more than the limit.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use super::eval::{Env, LoopState};
use super::limits::MAX_VALUE_DEPTH;
use minijinja::machinery::ast;

/// Why a template or a render failed.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// The template raised, or met values it cannot handle.
    Bad(String),
    /// A limit of steps, depth, memory or output was passed.
    Limit(String),
}

pub type Res<T> = Result<T, Fault>;

pub fn bad<T>(message: impl Into<String>) -> Res<T> {
    Err(Fault::Bad(message.into()))
}

thread_local! {
    static LIVE: Cell<u64> = const { Cell::new(0) };
}

/// Bytes held by the values of the render that runs on this thread.
pub fn live_bytes() -> u64 {
    LIVE.with(|c| c.get())
}

fn add_live(n: u64) {
    LIVE.with(|c| c.set(c.get().saturating_add(n)));
}

fn sub_live(n: u64) {
    LIVE.with(|c| c.set(c.get().saturating_sub(n)));
}

pub struct Text {
    pub s: Box<str>,
    /// Came through `|safe` or `|escape`: joined to plain text with `+`, the plain text is HTML-escaped (markupsafe).
    pub safe: bool,
}

impl Drop for Text {
    fn drop(&mut self) {
        sub_live(self.s.len() as u64 + 48);
    }
}

pub struct List {
    pub items: Vec<V>,
    pub tuple: bool,
    pub depth: u32,
    pub holds_namespace: bool,
}

impl Drop for List {
    fn drop(&mut self) {
        sub_live(self.items.len() as u64 * 32 + 64);
    }
}

pub struct Map {
    pub entries: Vec<(V, V)>,
    index: HashMap<Box<str>, usize>,
    pub depth: u32,
    pub holds_namespace: bool,
    bytes: u64,
}

impl Drop for Map {
    fn drop(&mut self) {
        sub_live(self.bytes);
    }
}

pub struct Macro {
    pub decl: *const ast::Macro<'static>,
    pub name: String,
    pub env: Rc<Env>,
}

pub struct Namespace {
    pub attrs: RefCell<Vec<(String, V)>>,
}

#[derive(Clone)]
pub enum V {
    Undefined(Rc<str>),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Rc<Text>),
    List(Rc<List>),
    Map(Rc<Map>),
    Range(i64, i64, i64),
    Namespace(Rc<Namespace>),
    Function(&'static str),
    Method(Rc<(V, &'static str)>),
    Macro(Rc<Macro>),
    Loop(Rc<LoopState>),
}

impl V {
    pub fn str(s: impl Into<Box<str>>) -> V {
        let s: Box<str> = s.into();
        add_live(s.len() as u64 + 48);
        V::Str(Rc::new(Text { s, safe: false }))
    }

    pub fn markup(s: impl Into<Box<str>>) -> V {
        let s: Box<str> = s.into();
        add_live(s.len() as u64 + 48);
        V::Str(Rc::new(Text { s, safe: true }))
    }

    pub fn is_safe(&self) -> bool {
        matches!(self, V::Str(t) if t.safe)
    }

    /// The same text, or the texts of a list, marked as safe.
    pub fn marked_safe(self) -> Res<V> {
        match &self {
            V::Str(t) if !t.safe => Ok(V::markup(&*t.s)),
            V::List(l) => {
                let items = l.items.iter().map(|v| v.clone().marked_safe()).collect::<Res<Vec<_>>>()?;
                if l.tuple {
                    V::tuple(items)
                } else {
                    V::list(items)
                }
            }
            _ => Ok(self),
        }
    }

    pub fn undefined(name: &str) -> V {
        V::Undefined(Rc::from(name))
    }

    pub fn list(items: Vec<V>) -> Res<V> {
        V::sequence(items, false)
    }

    pub fn tuple(items: Vec<V>) -> Res<V> {
        V::sequence(items, true)
    }

    fn sequence(items: Vec<V>, tuple: bool) -> Res<V> {
        let (depth, holds_namespace) = shape(items.iter())?;
        add_live(items.len() as u64 * 32 + 64);
        Ok(V::List(Rc::new(List { items, tuple, depth, holds_namespace })))
    }

    /// Later entries replace earlier ones with an equal key, as in a Python dict display.
    pub fn map(pairs: Vec<(V, V)>) -> Res<V> {
        let (depth, holds_namespace) = shape(pairs.iter().map(|(_, v)| v))?;
        let mut entries: Vec<(V, V)> = Vec::with_capacity(pairs.len());
        let mut index: HashMap<Box<str>, usize> = HashMap::new();
        let mut bytes = 96u64;
        for (k, v) in pairs {
            match &k {
                V::Str(t) => {
                    if let Some(&at) = index.get(&*t.s) {
                        entries[at].1 = v;
                        continue;
                    }
                    bytes += 120 + t.s.len() as u64;
                    index.insert(t.s.clone(), entries.len());
                }
                V::Int(_) | V::Bool(_) | V::Float(_) | V::None => {
                    bytes += 64;
                    if let Some(e) = entries.iter_mut().find(|e| !matches!(e.0, V::Str(_)) && super::ops::same_scalar(&e.0, &k)) {
                        e.1 = v;
                        continue;
                    }
                }
                other => return bad(format!("unhashable type: '{}'", other.type_name())),
            }
            entries.push((k, v));
        }
        add_live(bytes);
        Ok(V::Map(Rc::new(Map { entries, index, depth, holds_namespace, bytes })))
    }

    pub fn type_name(&self) -> &'static str {
        match self {
            V::Undefined(_) => "Undefined",
            V::None => "NoneType",
            V::Bool(_) => "bool",
            V::Int(_) => "int",
            V::Float(_) => "float",
            V::Str(_) => "str",
            V::List(l) if l.tuple => "tuple",
            V::List(_) => "list",
            V::Map(_) => "dict",
            V::Range(..) => "range",
            V::Namespace(_) => "Namespace",
            V::Function(_) => "function",
            V::Method(_) => "method",
            V::Macro(_) => "Macro",
            V::Loop(_) => "LoopContext",
        }
    }

    pub fn truthy(&self) -> bool {
        match self {
            V::Undefined(_) | V::None => false,
            V::Bool(b) => *b,
            V::Int(i) => *i != 0,
            V::Float(f) => *f != 0.0,
            V::Str(t) => !t.s.is_empty(),
            V::List(l) => !l.items.is_empty(),
            V::Map(m) => !m.entries.is_empty(),
            V::Range(a, b, s) => range_len(*a, *b, *s) > 0,
            _ => true,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            V::Str(t) => Some(&t.s),
            _ => None,
        }
    }

    pub fn as_int(&self) -> Option<i128> {
        match self {
            V::Int(i) => Some(*i),
            V::Bool(b) => Some(*b as i128),
            _ => None,
        }
    }

    pub fn as_float(&self) -> Option<f64> {
        match self {
            V::Float(f) => Some(*f),
            _ => self.as_int().map(|i| i as f64),
        }
    }

    pub fn is_undefined(&self) -> bool {
        matches!(self, V::Undefined(_))
    }

    fn depth(&self) -> u32 {
        match self {
            V::List(l) => l.depth,
            V::Map(m) => m.depth,
            V::Method(m) => m.0.depth() + 1,
            _ => 0,
        }
    }

    pub fn holds_namespace(&self) -> bool {
        match self {
            V::List(l) => l.holds_namespace,
            V::Map(m) => m.holds_namespace,
            V::Method(m) => m.0.holds_namespace(),
            V::Namespace(_) | V::Macro(_) | V::Loop(_) => true,
            _ => false,
        }
    }
}

/// Depth of a container over these items, and whether a namespace (which could make a cycle) is below.
fn shape<'a>(items: impl Iterator<Item = &'a V>) -> Res<(u32, bool)> {
    let mut depth = 0;
    let mut holds = false;
    for v in items {
        depth = depth.max(v.depth());
        holds |= v.holds_namespace();
    }
    if depth + 1 > MAX_VALUE_DEPTH {
        return Err(Fault::Limit(format!("values are nested more than {MAX_VALUE_DEPTH} deep")));
    }
    Ok((depth + 1, holds))
}

impl Map {
    /// Keys that are no text are found by comparing them all.
    pub fn charge(&self, e: &mut super::eval::Eval, key: &V) -> Res<()> {
        if key.as_str().is_some() {
            return Ok(());
        }
        e.names_step(self.entries.len())
    }

    pub fn get(&self, key: &str) -> Option<&V> {
        self.index.get(key).map(|&at| &self.entries[at].1)
    }

    pub fn get_value(&self, key: &V) -> Option<&V> {
        match key {
            V::Str(t) => self.get(&t.s),
            _ => self.entries.iter().find(|e| !matches!(e.0, V::Str(_)) && super::ops::same_scalar(&e.0, key)).map(|e| &e.1),
        }
    }
}

pub fn range_len(start: i64, stop: i64, step: i64) -> i64 {
    let (start, stop, step) = (start as i128, stop as i128, step as i128);
    let n = if step > 0 { (stop - start + step - 1) / step } else { (start - stop - step - 1) / -step };
    n.clamp(0, i64::MAX as i128) as i64
}

/// The value of a JSON text. Depth is limited by the parser (128).
pub fn from_json(v: serde_json::Value, memory: usize) -> Res<V> {
    use serde_json::Value as J;
    if live_bytes() > memory as u64 {
        return Err(Fault::Limit(format!("the variables need more than {memory} bytes of memory")));
    }
    Ok(match v {
        J::Null => V::None,
        J::Bool(b) => V::Bool(b),
        J::Number(n) => {
            if let Some(i) = n.as_i64() {
                V::Int(i as i128)
            } else if let Some(u) = n.as_u64() {
                V::Int(u as i128)
            } else {
                V::Float(n.as_f64().unwrap_or(f64::INFINITY))
            }
        }
        J::String(s) => V::str(s),
        J::Array(a) => V::list(a.into_iter().map(|v| from_json(v, memory)).collect::<Res<Vec<_>>>()?)?,
        J::Object(o) => V::map(o.into_iter().map(|(k, v)| Ok((V::str(k), from_json(v, memory)?))).collect::<Res<Vec<_>>>()?)?,
    })
}

/// To be called when a render starts on this thread.
pub fn reset_live() {
    LIVE.with(|c| c.set(0));
}
