//! What a schema does not allow, where that has an exact form; conditions and dependencies, which need it.

use std::rc::Rc;

use indexmap::IndexMap;
use serde_json::{Map, Value};

use super::super::Res;
use super::node::{any, every_type, is_any, never, Alt, Arr, Bound, Node, Num, Obj};
use super::parse::Context;
use super::strings::Str;
use super::{invalid, join, unsupported};

/// Texts that one string may exclude, and characters of each: they become a regular expression.
const EXCLUDED: usize = 100;
const EXCLUDED_CHARS: usize = 200;

impl Context<'_> {
    pub fn negate(&mut self, n: &Node, at: &str) -> Res<Node> {
        let mut out = any();
        for alt in n.iter() {
            self.spend(1)?;
            let other = self.negate_alt(alt, at)?;
            out = self.meet(&out, &other)?;
        }
        Ok(out)
    }

    fn negate_alt(&mut self, alt: &Alt, at: &str) -> Res<Node> {
        let fail = |why: &str| Err(unsupported(at, "not", why));
        let others = |kind: &Alt| -> Vec<Alt> {
            let same = |a: &Alt| match (a, kind) {
                (Alt::Bool(a), Alt::Bool(b)) => a == b,
                (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
            };
            every_type().into_iter().filter(|a| !same(a)).collect()
        };
        let mut out = match alt {
            Alt::Any => return Ok(never()),
            Alt::Ref(set) => {
                self.level += 1;
                if self.level > 20 {
                    return fail("its references are nested too deeply");
                }
                let node = self.expand(set)?;
                let out = self.negate(&node, at);
                self.level -= 1;
                return out;
            }
            other => others(other),
        };
        match alt {
            Alt::Num(n) => {
                // An integer that is one value leaves the values on both sides.
                let single = n.low.is_some() && n.low == n.high;
                if (n.integer && !single) || !n.multiples.is_empty() {
                    return fail("the numbers that are no integers or multiples have no form");
                }
                let flip = |b: Bound| Some(Bound { value: b.value, open: !b.open });
                out.extend(n.low.map(|b| Alt::Num(Num { high: flip(b), ..Num::default() })));
                out.extend(n.high.map(|b| Alt::Num(Num { low: flip(b), ..Num::default() })));
            }
            Alt::Str(s) => self.negate_string(s, at, &mut out)?,
            Alt::Arr(a) => {
                if !a.prefix.is_empty() || !(is_any(&a.items) || a.max == Some(0)) {
                    return fail("some item of an array would have to differ");
                }
                if a.min > 0 {
                    out.push(Alt::Arr(Rc::new(Arr { max: Some(a.min - 1), ..Arr::default() })));
                }
                out.extend(a.max.map(|m| Alt::Arr(Rc::new(Arr { min: m + 1, ..Arr::default() }))));
            }
            Alt::Obj(o) => self.negate_object(o, at, &mut out)?,
            _ => {}
        }
        Ok(Rc::new(out))
    }

    fn negate_string(&mut self, s: &Str, at: &str, out: &mut Vec<Alt>) -> Res<()> {
        if !s.patterns.is_empty() || !s.formats.is_empty() || !s.not.is_empty() {
            return Err(unsupported(at, "not", "the strings that do not match a pattern or format have no form"));
        }
        let mut add = |s: Str| out.push(Alt::Str(Rc::new(s)));
        if let Some(texts) = &s.texts {
            if texts.len() > EXCLUDED || texts.iter().any(|t| t.chars().count() > EXCLUDED_CHARS) {
                return Err(unsupported(at, "not", "it excludes too many or too long strings"));
            }
            add(Str { not: texts.iter().cloned().collect(), ..Str::default() });
            return Ok(());
        }
        if s.min > 0 {
            add(Str { max: Some(s.min - 1), ..Str::default() });
        }
        if let Some(max) = s.max {
            add(Str { min: max + 1, ..Str::default() });
        }
        Ok(())
    }

    fn negate_object(&mut self, o: &Obj, at: &str, out: &mut Vec<Alt>) -> Res<()> {
        if !o.patterns.is_empty() || !is_any(&o.additional) {
            return Err(unsupported(at, "not", "some property without a name of its own would have to differ"));
        }
        let mut add = |o: Obj| out.push(Alt::Obj(Rc::new(o)));
        for name in &o.required {
            add(Obj { props: IndexMap::from([(name.clone(), never())]), ..Obj::default() });
        }
        if o.min > 0 {
            add(Obj { max: Some(o.min - 1), ..Obj::default() });
        }
        if let Some(max) = o.max {
            add(Obj { min: max + 1, ..Obj::default() });
        }
        for (name, node) in &o.props {
            if !is_any(node) {
                let other = self.negate(node, &join(at, name))?;
                if !other.is_empty() {
                    out.push(Alt::Obj(Rc::new(having(name, other))));
                }
            }
        }
        Ok(())
    }

    /// `if` with what stands beside it.
    pub fn condition(&mut self, v: &Value, s: &Map<String, Value>, at: &str, base: &str) -> Res<Option<Node>> {
        if !s.contains_key("then") && !s.contains_key("else") {
            return Ok(None);
        }
        let branch = |c: &mut Self, keyword: &str| match s.get(keyword) {
            Some(v) => c.parse(v, &join(at, keyword), base),
            None => Ok(any()),
        };
        let condition = self.parse(v, &join(at, "if"), base)?;
        let (then, other) = (branch(self, "then")?, branch(self, "else")?);
        let mut out = self.meet(&condition, &then)?.to_vec();
        let negated = self.negate(&condition, &join(at, "if"))?;
        out.extend(self.meet(&negated, &other)?.iter().cloned());
        Ok(Some(Rc::new(out)))
    }

    pub fn dependencies(&mut self, v: &Value, at: &str, keyword: &str, base: &str) -> Res<Node> {
        let map = v.as_object().ok_or_else(|| invalid(at, keyword, "is no object"))?;
        let here = join(at, keyword);
        let mut node = any();
        for (name, rule) in map {
            let mut present = Obj::default();
            present.required.insert(name.clone());
            // Named, so that it comes before what it asks for.
            present.props.insert(name.clone(), any());
            let then = match rule {
                Value::Array(_) => {
                    present.required.extend(self.names(Some(rule), &here, name)?);
                    any()
                }
                _ if keyword == "dependentRequired" => return Err(invalid(&here, name, "is no array of strings")),
                _ => self.parse(rule, &join(&here, name), base)?,
            };
            let absent = Obj { props: IndexMap::from([(name.clone(), never())]), ..Obj::default() };
            let mut alts = Self::no_objects();
            alts.push(Alt::Obj(Rc::new(absent)));
            let present: Node = Rc::new(vec![Alt::Obj(Rc::new(present))]);
            alts.extend(self.meet(&present, &then)?.iter().cloned());
            node = self.meet(&node, &Rc::new(alts))?;
        }
        Ok(node)
    }

    pub fn literal_object(&mut self, map: &Map<String, Value>, at: &str) -> Res<Obj> {
        let mut o = Obj { additional: never(), ..Obj::default() };
        for (name, value) in map {
            o.props.insert(name.clone(), Rc::new(vec![self.literal(value, at)?]));
            o.required.insert(name.clone());
        }
        Ok(o)
    }
}

/// Objects that have the property, and it obeys the node.
fn having(name: &str, node: Node) -> Obj {
    let mut o = Obj::default();
    o.props.insert(name.to_string(), node);
    o.required.insert(name.to_string());
    o
}
