//! From alternatives to a schema of the keywords that llguidance enforces exactly.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use serde_json::{json, Map, Value};

use super::super::compile::white_space;
use super::super::{Error, Res};
use super::node::{is_any, never, Alt, Arr, Bound, Node, Num, Obj};
use super::parse::Context;
use super::pattern::all_but;
use super::strings::Str;
use super::{place, unsupported};

/// Alternatives that one object with a number of properties may become.
const CHOICES: usize = 64;

type Set = Rc<BTreeSet<usize>>;

pub fn emit(context: &mut Context, root: &Node) -> Res<Value> {
    let mut e = Emitter { context, sets: Vec::new(), numbers: HashMap::new(), productive: HashMap::new() };
    e.find_sets(root)?;
    e.find_productive();
    e.find_loops()?;
    if !e.can_end(root) {
        return Err(Error::Invalid("the schema allows no value at all".into()));
    }
    let mut definitions = Map::new();
    let controls = e.write_definitions(&mut definitions)?;
    let body = e.node(root)?;
    let mut out = match body {
        Value::Object(map) => map,
        other => Map::from_iter([("anyOf".to_string(), json!([other]))]),
    };
    if !definitions.is_empty() {
        out.insert("$defs".into(), Value::Object(definitions));
    }
    if controls || has_controls(&Value::Object(out.clone())) {
        return Err(Error::Unsupported("a constant or name in the schema has a control character".into()));
    }
    let mut options = white_space(e.context.options);
    // Without \u an additional property cannot take a named one's name in another spelling.
    options["json_allowed_escapes"] = "nrbtf\\\"".into();
    out.insert("x-guidance".into(), options);
    Ok(Value::Object(out))
}

/// Some text would need an escape that is not allowed.
fn has_controls(v: &Value) -> bool {
    let bad = |s: &str| s.chars().any(|c| (c < ' ' && !"\n\r\t\u{8}\u{c}".contains(c)) || c == '\u{7f}');
    match v {
        Value::String(s) => bad(s),
        Value::Array(list) => list.iter().any(has_controls),
        Value::Object(map) => map.iter().any(|(k, v)| bad(k) || has_controls(v)),
        _ => false,
    }
}

struct Emitter<'c, 'a> {
    context: &'c mut Context<'a>,
    sets: Vec<Set>,
    numbers: HashMap<Set, usize>,
    /// Sets of definitions that some finite value satisfies.
    productive: HashMap<Set, bool>,
}

impl Emitter<'_, '_> {
    fn expanded(&self, set: &Set) -> Node {
        self.context.expanded[set].clone()
    }

    /// Every set of definitions that the root reaches.
    fn find_sets(&mut self, root: &Node) -> Res<()> {
        let mut todo = vec![root.clone()];
        let mut seen = std::collections::HashSet::new();
        while let Some(node) = todo.pop() {
            if !seen.insert(Rc::as_ptr(&node)) {
                continue;
            }
            self.context.spend(1)?;
            for alt in node.iter() {
                match alt {
                    Alt::Ref(set) if !self.numbers.contains_key(set) => {
                        self.numbers.insert(set.clone(), self.sets.len());
                        self.sets.push(set.clone());
                        todo.push(self.context.expand(set)?);
                    }
                    Alt::Arr(a) => todo.extend(a.prefix.iter().chain([&a.items]).cloned()),
                    Alt::Obj(o) => {
                        todo.extend(o.props.values().chain(o.patterns.values()).chain([&o.additional]).cloned());
                    }
                    _ => {}
                }
            }
            // Kept alive by the caller's nodes or the expansions, so addresses stay distinct.
        }
        Ok(())
    }

    fn find_productive(&mut self) {
        loop {
            let mut changed = false;
            for set in self.sets.clone() {
                if !self.productive.contains_key(&set) && self.can_end(&self.expanded(&set)) {
                    self.productive.insert(set, true);
                    changed = true;
                }
            }
            if !changed {
                return;
            }
        }
    }

    fn can_end(&self, n: &Node) -> bool {
        n.iter().any(|a| self.alt_can_end(a))
    }

    fn alt_can_end(&self, alt: &Alt) -> bool {
        match alt {
            Alt::Ref(set) => self.productive.contains_key(set),
            Alt::Arr(a) => {
                let first = a.prefix.iter().take(a.min as usize).all(|n| self.can_end(n));
                first && (a.min <= a.prefix.len() as u64 || self.can_end(&a.items))
            }
            Alt::Obj(o) => o.required.iter().all(|name| match o.props.get(name) {
                Some(node) => self.can_end(node),
                None => o.patterns.values().chain([&o.additional]).any(|n| self.can_end(n)),
            }),
            _ => true,
        }
    }

    /// A definition that is itself, without anything in between, says nothing.
    fn find_loops(&self) -> Res<()> {
        for start in &self.sets {
            let mut todo = vec![start.clone()];
            let mut seen = BTreeSet::new();
            while let Some(set) = todo.pop() {
                for alt in self.expanded(&set).iter() {
                    let Alt::Ref(next) = alt else { continue };
                    if next == start {
                        return Err(Error::Invalid(format!("{}: \"$ref\" leads back to itself", place(""))));
                    }
                    if seen.insert(next.clone()) {
                        todo.push(next.clone());
                    }
                }
            }
        }
        Ok(())
    }

    /// True when some text in them has a control character.
    fn write_definitions(&mut self, out: &mut Map<String, Value>) -> Res<bool> {
        let mut controls = false;
        for (number, set) in self.sets.clone().iter().enumerate() {
            if self.productive.contains_key(set) {
                let value = self.node(&self.expanded(set))?;
                controls = controls || has_controls(&value);
                out.insert(format!("d{number}"), value);
            }
        }
        Ok(controls)
    }

    fn node(&mut self, n: &Node) -> Res<Value> {
        self.context.spend(1)?;
        let mut alts = Vec::new();
        let both = |want: bool| n.iter().any(|a| matches!(a, Alt::Bool(b) if *b == want));
        let boolean = both(true) && both(false);
        let mut seen = BTreeSet::new();
        for alt in n.iter() {
            if !self.alt_can_end(alt) {
                continue;
            }
            match alt {
                Alt::Any => return Ok(Value::Bool(true)),
                Alt::Null if seen.insert(0) => alts.push(json!({"type": "null"})),
                Alt::Bool(_) if boolean => {
                    if seen.insert(1) {
                        alts.push(json!({"type": "boolean"}));
                    }
                }
                Alt::Bool(b) if seen.insert(2) => alts.push(json!({"const": b})),
                Alt::Null | Alt::Bool(_) => {}
                Alt::Num(n) => alts.push(number(n)),
                Alt::Str(s) => alts.push(string(s)),
                Alt::Arr(a) => alts.push(self.array(a)?),
                Alt::Obj(o) => self.object(o, &mut alts)?,
                Alt::Ref(set) => alts.push(json!({"$ref": format!("#/$defs/d{}", self.numbers[set])})),
            }
        }
        Ok(match alts.len() {
            0 => Value::Bool(false),
            1 => alts.swap_remove(0),
            _ => json!({"anyOf": alts}),
        })
    }

    fn array(&mut self, a: &Arr) -> Res<Value> {
        let mut out = json!({"type": "array"});
        if a.min > 0 {
            out["minItems"] = a.min.into();
        }
        if let Some(max) = a.max {
            out["maxItems"] = max.into();
        }
        if !a.prefix.is_empty() {
            out["prefixItems"] = a.prefix.iter().map(|n| self.node(n)).collect::<Res<Vec<_>>>()?.into();
        }
        out["items"] = self.node(&a.items)?;
        Ok(out)
    }

    /// With `Options::closed`, once all that a value obeys has been put together, nothing but what is named may come.
    fn closed(&mut self, o: &Obj) -> Res<Option<Obj>> {
        let named = !o.props.is_empty() || !o.patterns.is_empty();
        if !self.context.options.closed || o.open || !named || !is_any(&o.additional) {
            return Ok(None);
        }
        let mut closed = Obj { additional: never(), ..o.clone() };
        for name in &o.required {
            if !closed.props.contains_key(name) {
                closed.props.insert(name.clone(), self.context.property(o, name)?);
            }
        }
        Ok(Some(closed))
    }

    fn object(&mut self, o: &Obj, alts: &mut Vec<Value>) -> Res<()> {
        let closed = self.closed(o)?;
        let o = closed.as_ref().unwrap_or(o);
        let required = o.required.len() as u64;
        let counted = o.min > required || o.max.is_some();
        let optional: Vec<&String> =
            o.props.iter().filter(|(name, n)| !o.required.contains(*name) && self.can_end(n)).map(|(name, _)| name).collect();
        if !counted || optional.is_empty() {
            let free = o.min.saturating_sub(required);
            // The same name twice would count twice.
            if free > 1 {
                return Err(unsupported(&o.at, "minProperties", "a grammar does not see whether names repeat"));
            }
            alts.push(self.one_object(o, &o.required.iter().collect(), &[], o.min, o.max)?);
            return Ok(());
        }
        self.counted_object(o, &optional, alts)
    }

    /// One alternative per set of optional named properties, or per smallest or largest set where others cannot be.
    fn counted_object(&mut self, o: &Obj, optional: &[&String], alts: &mut Vec<Value>) -> Res<()> {
        let required = o.required.len() as u64;
        let others = self.can_end(&o.additional) || o.patterns.values().any(|n| self.can_end(n));
        let (low, high) = (o.min.saturating_sub(required), o.max.map(|m| m - required));
        let keyword = if o.max.is_some() { "maxProperties" } else { "minProperties" };
        let fail = || unsupported(&o.at, keyword, "too many named properties are optional");
        if optional.len() > 20 && !(low <= 1 && high.is_none()) {
            return Err(fail());
        }
        let mut add = |e: &mut Self, take: Vec<&String>, leave: Vec<&String>, max: Option<u64>| -> Res<()> {
            if alts.len() >= CHOICES {
                return Err(fail());
            }
            let names: Vec<&String> = o.required.iter().chain(take).collect();
            let min = if max.is_some() || !leave.is_empty() { o.min } else { 0 };
            let free = min.saturating_sub(names.len() as u64);
            if free > 1 {
                return Err(unsupported(&o.at, "minProperties", "a grammar does not see whether names repeat"));
            }
            alts.push(e.one_object(o, &names, &leave, if free > 0 { min } else { 0 }, max)?);
            Ok(())
        };
        if high.is_none() && low == 1 {
            for name in optional {
                add(self, vec![name], Vec::new(), None)?;
            }
            if others {
                add(self, Vec::new(), optional.to_vec(), None)?;
            }
            return Ok(());
        }
        for bits in 0u32..1 << optional.len() {
            let count = u64::from(bits.count_ones());
            let fits = high.is_none_or(|h| count <= h) && (count >= low || others);
            // Without others, only the smallest sets matter when there is no upper bound.
            if !fits || (!others && high.is_none() && count > low) {
                continue;
            }
            let chosen = |want: bool| -> Vec<&String> {
                let pick = optional.iter().enumerate().filter(|(i, _)| (bits >> i & 1 == 1) == want);
                pick.map(|(_, n)| *n).collect()
            };
            let leave = if !others && high.is_none() { Vec::new() } else { chosen(false) };
            let max = if others { o.max } else { None };
            add(self, chosen(true), leave, max)?;
        }
        Ok(())
    }

    fn one_object(&mut self, o: &Obj, required: &Vec<&String>, without: &[&String], min: u64, max: Option<u64>) -> Res<Value> {
        let mut out = Map::from_iter([("type".to_string(), Value::from("object"))]);
        let mut props = Map::new();
        for (name, node) in &o.props {
            let value = if without.contains(&name) { Value::Bool(false) } else { self.node(node)? };
            props.insert(name.clone(), value);
        }
        if !props.is_empty() {
            out.insert("properties".into(), Value::Object(props));
        }
        let mut patterns = Map::new();
        for (p, node) in &o.patterns {
            patterns.insert(p.clone(), self.node(node)?);
        }
        if !patterns.is_empty() {
            out.insert("patternProperties".into(), Value::Object(patterns));
        }
        let additional = self.node(&o.additional)?;
        if additional != Value::Bool(true) {
            out.insert("additionalProperties".into(), additional);
        }
        if !required.is_empty() {
            out.insert("required".into(), required.iter().map(|n| Value::from(n.as_str())).collect());
        }
        if min > 0 {
            out.insert("minProperties".into(), min.into());
        }
        if let Some(max) = max {
            out.insert("maxProperties".into(), max.into());
        }
        Ok(Value::Object(out))
    }
}

fn number(n: &Num) -> Value {
    let mut out = Map::new();
    out.insert("type".into(), if n.integer { "integer" } else { "number" }.into());
    let mut add = |b: Option<Bound>, closed: &str, open: &str| {
        if let Some(b) = b {
            out.insert(if b.open { open } else { closed }.into(), json!(b.value));
        }
    };
    add(n.low, "minimum", "exclusiveMinimum");
    add(n.high, "maximum", "exclusiveMaximum");
    let mut all: Vec<Value> = n.multiples.iter().skip(1).map(|m| json!({"multipleOf": m, "type": out["type"]})).collect();
    if let Some(m) = n.multiples.first() {
        out.insert("multipleOf".into(), Value::Number(m.clone()));
    }
    if all.is_empty() {
        return Value::Object(out);
    }
    all.push(Value::Object(out));
    json!({"allOf": all})
}

fn string(s: &Str) -> Value {
    if let (Some(texts), true) = (&s.texts, s.formats.is_empty()) {
        return json!({"enum": texts});
    }
    let mut out = json!({"type": "string"});
    if s.min > 0 {
        out["minLength"] = s.min.into();
    }
    if let Some(max) = s.max {
        out["maxLength"] = max.into();
    }
    let mut all = Vec::new();
    let mut rules = s.patterns.iter().map(|p| ("pattern", p.clone())).collect::<Vec<_>>();
    rules.extend(s.formats.iter().map(|f| ("format", f.clone())));
    rules.extend((!s.not.is_empty()).then(|| ("pattern", all_but(&s.not))));
    for (keyword, text) in rules {
        match out.get(keyword) {
            None => out[keyword] = text.into(),
            Some(_) => all.push(json!({"type": "string", keyword: text})),
        }
    }
    if let Some(texts) = &s.texts {
        all.push(json!({"enum": texts}));
    }
    if all.is_empty() {
        return out;
    }
    all.push(out);
    json!({"allOf": all})
}
