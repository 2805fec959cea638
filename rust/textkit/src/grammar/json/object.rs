//! Alternatives that are objects.

use std::rc::Rc;

use indexmap::{IndexMap, IndexSet};
use serde_json::{Map, Value};

use super::super::Res;
use super::node::{is_any, never, tighter, Alt, Node, Obj};
use super::parse::Context;
use super::strings::Str;
use super::{invalid, join, pattern, unsupported};

impl Context<'_> {
    /// What the value under `name` obeys.
    pub fn property(&mut self, o: &Obj, name: &str) -> Res<Node> {
        if let Some(node) = o.props.get(name) {
            return Ok(node.clone());
        }
        for (p, node) in &o.patterns {
            if self.patterns.matches(p, name)? {
                return Ok(node.clone());
            }
        }
        Ok(o.additional.clone())
    }

    pub fn meet_objects(&mut self, a: &Obj, b: &Obj) -> Res<Option<Obj>> {
        let mut props = IndexMap::new();
        for name in a.props.keys().chain(b.props.keys().filter(|n| !a.props.contains_key(*n))) {
            self.spend(1)?;
            let (x, y) = (self.property(a, name)?, self.property(b, name)?);
            props.insert(name.clone(), self.meet(&x, &y)?);
        }
        let mut patterns = IndexMap::new();
        for (p, node) in &a.patterns {
            let other = b.patterns.get(p).unwrap_or(&b.additional);
            patterns.insert(p.clone(), self.meet(node, other)?);
        }
        for (p, node) in b.patterns.iter().filter(|(p, _)| !a.patterns.contains_key(*p)) {
            patterns.insert(p.clone(), self.meet(&a.additional, node)?);
        }
        let additional = self.meet(&a.additional, &b.additional)?;
        let required = a.required.union(&b.required).cloned().collect();
        let max = tighter(a.max, b.max);
        let at = if a.min > 0 || a.max.is_some() { a.at.clone() } else { b.at.clone() };
        let open = a.open || b.open;
        self.trim_object(Obj { props, patterns, additional, open, required, min: a.min.max(b.min), max, at })
    }

    /// Nothing when a name that must be there cannot, or the counts contradict.
    pub fn trim_object(&mut self, o: Obj) -> Res<Option<Obj>> {
        if o.max.is_some_and(|m| o.min > m || o.required.len() as u64 > m) {
            return Ok(None);
        }
        for name in &o.required {
            if self.property(&o, name)?.is_empty() {
                return Ok(None);
            }
        }
        Ok(Some(o))
    }

    pub fn parse_object(&mut self, s: &Map<String, Value>, at: &str, base: &str) -> Res<Vec<Alt>> {
        let mut o = Obj { min: self.count(s, at, "minProperties")?.unwrap_or(0), ..Obj::default() };
        o.max = self.count(s, at, "maxProperties")?;
        o.at = Rc::from(at);
        o.required = self.names(s.get("required"), at, "required")?;
        if let Some(v) = s.get("properties") {
            let place = join(at, "properties");
            let map = v.as_object().ok_or_else(|| invalid(at, "properties", "is no object"))?;
            for (name, value) in map {
                o.props.insert(name.clone(), self.parse(value, &join(&place, name), base)?);
            }
        }
        if let Some(v) = s.get("patternProperties") {
            let place = join(at, "patternProperties");
            let map = v.as_object().ok_or_else(|| invalid(at, "patternProperties", "is no object"))?;
            for (p, value) in map {
                let node = self.parse(value, &join(&place, p), base)?;
                o.patterns.insert(self.pattern(p, at, "patternProperties")?, node);
            }
        }
        if let Some(v) = s.get("additionalProperties").or_else(|| closing(s)) {
            o.additional = self.parse(v, &join(at, "additionalProperties"), base)?;
            o.open = true;
        }
        self.obey_patterns(&mut o)?;
        if let Some(v) = s.get("propertyNames") {
            self.property_names(&mut o, v, at, base)?;
        }
        Ok(self.trim_object(o)?.map(|o| Alt::Obj(Rc::new(o))).into_iter().collect())
    }

    /// Named properties obey the patterns that they match too.
    fn obey_patterns(&mut self, o: &mut Obj) -> Res<()> {
        for (name, node) in o.props.iter_mut() {
            for (p, pattern_node) in &o.patterns {
                self.spend(1)?;
                if self.patterns.matches(p, name)? {
                    *node = self.meet(node, pattern_node)?;
                }
            }
        }
        Ok(())
    }

    fn property_names(&mut self, o: &mut Obj, v: &Value, at: &str, base: &str) -> Res<()> {
        let names = self.parse(v, &join(at, "propertyNames"), base)?;
        if is_any(&names) {
            return Ok(());
        }
        let fail = |why: &str| Err(unsupported(at, "propertyNames", why));
        let mut allowed: Vec<Rc<Str>> = Vec::new();
        for alt in names.iter() {
            match alt {
                Alt::Str(s) => allowed.push(s.clone()),
                Alt::Ref(set) => allowed.extend(self.expand(set)?.iter().filter_map(|a| match a {
                    Alt::Str(s) => Some(s.clone()),
                    _ => None,
                })),
                _ => {}
            }
        }
        if allowed.iter().all(|s| s.texts.is_some() && s.formats.is_empty()) {
            let texts: IndexSet<String> = allowed.iter().flat_map(|s| s.texts.clone().unwrap_or_default()).collect();
            let mut props = IndexMap::new();
            for text in &texts {
                props.insert(text.clone(), self.property(o, text)?);
            }
            // In the order that the properties came in.
            props.sort_by_key(|name, _| o.props.get_index_of(name).unwrap_or(usize::MAX));
            (o.props, o.patterns, o.additional) = (props, IndexMap::new(), never());
            return Ok(());
        }
        let [rule] = &allowed[..] else { return fail("it allows several kinds of names") };
        let Some(p) = self.one_pattern(rule) else { return fail("it has more than one rule") };
        for (name, node) in o.props.iter_mut() {
            if !self.patterns.matches(&p, name)? {
                *node = never();
            }
        }
        if !o.patterns.is_empty() {
            return fail("it stands beside \"patternProperties\"");
        }
        // The engine applies a pattern to named properties too.
        if !o.props.is_empty() && !is_any(&o.additional) && !o.additional.is_empty() {
            return fail("it stands beside \"properties\" and \"additionalProperties\"");
        }
        if !o.additional.is_empty() {
            let rest = std::mem::replace(&mut o.additional, never());
            o.patterns.insert(p, rest);
        }
        Ok(())
    }

    /// The rules of a string as one pattern.
    fn one_pattern(&mut self, s: &Str) -> Option<String> {
        let bounded = s.min > 0 || s.max.is_some();
        let max = s.max.map_or(String::new(), |m| m.to_string());
        match (&s.patterns[..], bounded, s.not.is_empty()) {
            _ if !s.formats.is_empty() || s.texts.is_some() => None,
            ([], false, true) => Some("^".into()),
            ([p], false, true) => Some(p.clone()),
            ([], true, true) => Some(format!("^(?s:.){{{},{max}}}$", s.min)),
            ([], false, false) => Some(pattern::all_but(&s.not)),
            _ => None,
        }
    }

    pub fn names(&mut self, v: Option<&Value>, at: &str, keyword: &str) -> Res<IndexSet<String>> {
        let Some(v) = v else { return Ok(IndexSet::new()) };
        let fail = || invalid(at, keyword, "is no array of strings");
        let list = v.as_array().ok_or_else(fail)?;
        self.spend(list.len() as u64)?;
        list.iter().map(|x| x.as_str().map(str::to_string).ok_or_else(fail)).collect()
    }
}

/// `unevaluatedProperties` says the same as `additionalProperties` where no other keyword evaluates any.
fn closing(s: &Map<String, Value>) -> Option<&Value> {
    s.get("unevaluatedProperties").filter(|_| !super::keywords::applies_in_place(s))
}
