//! What a schema allows: a union of alternatives, each of one type; and how two such unions meet.

use std::collections::BTreeSet;
use std::rc::Rc;

use indexmap::{IndexMap, IndexSet};

use super::super::{Error, Res};
use super::parse::Context;
use super::strings::Str;

pub type Node = Rc<Vec<Alt>>;

#[derive(Clone, Debug)]
pub enum Alt {
    Any,
    Null,
    Bool(bool),
    Num(Num),
    Str(Rc<Str>),
    Arr(Rc<Arr>),
    Obj(Rc<Obj>),
    /// All of these definitions at once.
    Ref(Rc<BTreeSet<usize>>),
}

/// A bound; `open`: the value itself is outside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    pub value: f64,
    pub open: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Num {
    pub low: Option<Bound>,
    pub high: Option<Bound>,
    pub integer: bool,
    pub multiples: Vec<serde_json::Number>,
}

#[derive(Clone, Debug)]
pub struct Arr {
    pub min: u64,
    pub max: Option<u64>,
    pub prefix: Vec<Node>,
    pub items: Node,
}

/// Names in `props` obey that schema alone; other names the pattern they match, the rest `additional`.
#[derive(Clone, Debug)]
pub struct Obj {
    pub props: IndexMap<String, Node>,
    pub patterns: IndexMap<String, Node>,
    pub additional: Node,
    /// The schema speaks of additional properties.
    pub open: bool,
    pub required: IndexSet<String>,
    pub min: u64,
    pub max: Option<u64>,
    /// Where the counts stand.
    pub at: Rc<str>,
}

pub fn any() -> Node {
    Rc::new(vec![Alt::Any])
}

pub fn never() -> Node {
    Rc::new(Vec::new())
}

pub fn is_any(n: &Node) -> bool {
    n.iter().any(|a| matches!(a, Alt::Any))
}

impl Default for Arr {
    fn default() -> Self {
        Arr { min: 0, max: None, prefix: Vec::new(), items: any() }
    }
}

impl Default for Obj {
    fn default() -> Self {
        Obj {
            props: IndexMap::new(),
            patterns: IndexMap::new(),
            additional: any(),
            open: false,
            required: IndexSet::new(),
            min: 0,
            max: None,
            at: Rc::from(""),
        }
    }
}

/// One alternative of every type.
pub fn every_type() -> Vec<Alt> {
    vec![
        Alt::Null,
        Alt::Bool(true),
        Alt::Bool(false),
        Alt::Num(Num::default()),
        Alt::Str(Rc::default()),
        Alt::Arr(Rc::default()),
        Alt::Obj(Rc::default()),
    ]
}

pub fn tighter(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

impl Num {
    pub fn is_empty(&self) -> bool {
        match (self.low, self.high) {
            (Some(l), Some(h)) if l.value > h.value || (l.value == h.value && (l.open || h.open)) => true,
            (Some(l), Some(h)) if self.integer => {
                let first = if l.open { l.value.floor() + 1.0 } else { l.value.ceil() };
                let last = if h.open { h.value.ceil() - 1.0 } else { h.value.floor() };
                first > last
            }
            _ => false,
        }
    }

    pub fn with(&self, other: &Num) -> Num {
        let pick = |a: Option<Bound>, b: Option<Bound>, low: bool| match (a, b) {
            (Some(a), Some(b)) if a.value == b.value => Some(Bound { value: a.value, open: a.open || b.open }),
            (Some(a), Some(b)) => Some(if (a.value > b.value) == low { a } else { b }),
            (a, b) => a.or(b),
        };
        let mut multiples = self.multiples.clone();
        multiples.extend(other.multiples.iter().filter(|m| !self.multiples.contains(m)).cloned());
        Num {
            low: pick(self.low, other.low, true),
            high: pick(self.high, other.high, false),
            integer: self.integer || other.integer,
            multiples,
        }
    }
}

const DEEPEST_MEETING: usize = 60;

impl Context<'_> {
    /// What both allow.
    pub fn meet(&mut self, a: &Node, b: &Node) -> Res<Node> {
        if Rc::ptr_eq(a, b) || is_any(b) {
            return Ok(a.clone());
        }
        if is_any(a) {
            return Ok(b.clone());
        }
        self.level += 1;
        if self.level > DEEPEST_MEETING {
            return Err(Error::TooLarge("the schema's references are nested too deeply".into()));
        }
        let mut out = Vec::new();
        for x in a.iter() {
            for y in b.iter() {
                self.spend(1)?;
                self.meet_alts(x, y, &mut out)?;
            }
        }
        self.level -= 1;
        Ok(Rc::new(out))
    }

    fn meet_alts(&mut self, x: &Alt, y: &Alt, out: &mut Vec<Alt>) -> Res<()> {
        match (x, y) {
            (Alt::Any, z) | (z, Alt::Any) => out.push(z.clone()),
            (Alt::Ref(a), Alt::Ref(b)) => out.push(Alt::Ref(Rc::new(a.union(b).copied().collect()))),
            (Alt::Ref(a), z) => {
                let node = self.expand(a)?;
                out.extend(self.meet(&node, &Rc::new(vec![z.clone()]))?.iter().cloned());
            }
            (z, Alt::Ref(a)) => {
                let node = self.expand(a)?;
                out.extend(self.meet(&Rc::new(vec![z.clone()]), &node)?.iter().cloned());
            }
            (Alt::Null, Alt::Null) => out.push(Alt::Null),
            (Alt::Bool(a), Alt::Bool(b)) if a == b => out.push(Alt::Bool(*a)),
            (Alt::Num(a), Alt::Num(b)) => {
                let n = a.with(b);
                if !n.is_empty() {
                    out.push(Alt::Num(n));
                }
            }
            (Alt::Str(a), Alt::Str(b)) => out.extend(self.meet_strings(a, b)?.map(Alt::Str)),
            (Alt::Arr(a), Alt::Arr(b)) => out.extend(self.meet_arrays(a, b)?.map(|x| Alt::Arr(Rc::new(x)))),
            (Alt::Obj(a), Alt::Obj(b)) => out.extend(self.meet_objects(a, b)?.map(|x| Alt::Obj(Rc::new(x)))),
            _ => {}
        }
        Ok(())
    }

    fn meet_arrays(&mut self, a: &Arr, b: &Arr) -> Res<Option<Arr>> {
        let mut prefix = Vec::new();
        for i in 0..a.prefix.len().max(b.prefix.len()) {
            self.spend(1)?;
            prefix.push(self.meet(a.prefix.get(i).unwrap_or(&a.items), b.prefix.get(i).unwrap_or(&b.items))?);
        }
        let items = self.meet(&a.items, &b.items)?;
        Ok(trim_array(Arr { min: a.min.max(b.min), max: tighter(a.max, b.max), prefix, items }))
    }

    /// Nothing satisfies the node, as far as can be shown.
    pub fn is_empty(&mut self, n: &Node, depth: usize) -> Res<bool> {
        for alt in n.iter() {
            self.spend(1)?;
            if !self.alt_is_empty(alt, depth)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn alt_is_empty(&mut self, alt: &Alt, depth: usize) -> Res<bool> {
        if depth == 0 {
            return Ok(false);
        }
        match alt {
            Alt::Ref(set) => {
                let node = self.expand(set)?;
                self.is_empty(&node, depth - 1)
            }
            Alt::Arr(a) => {
                for i in 0..a.min.min(a.prefix.len() as u64 + 1) as usize {
                    if self.is_empty(a.prefix.get(i).unwrap_or(&a.items), depth - 1)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Alt::Obj(o) => {
                for name in &o.required {
                    let node = self.property(o, name)?;
                    if self.is_empty(&node, depth - 1)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            _ => Ok(false),
        }
    }
}

/// The array without items that cannot be; nothing when it must have one of them.
pub fn trim_array(mut a: Arr) -> Option<Arr> {
    if let Some(i) = a.prefix.iter().position(|n| n.is_empty()) {
        a.max = tighter(a.max, Some(i as u64));
    }
    if a.items.is_empty() {
        a.max = tighter(a.max, Some(a.prefix.len() as u64));
    }
    if let Some(max) = a.max {
        a.prefix.truncate(max as usize);
        if a.min > max {
            return None;
        }
    }
    Some(a)
}
