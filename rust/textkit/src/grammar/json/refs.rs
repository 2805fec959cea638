//! References to other places of the same document.

use std::collections::BTreeSet;
use std::rc::Rc;

use serde_json::Value;

use super::super::Res;
use super::node::{any, Node};
use super::parse::Context;
use super::unsupported;

/// A place of the document that something refers to.
pub struct Definition {
    pointer: String,
    /// The place of the resource that its own references begin at.
    base: String,
    state: State,
}

enum State {
    Untouched,
    Busy,
    Done(Node),
}

impl Context<'_> {
    /// The definition that `reference` means at a place whose resource begins at `base`.
    pub fn resolve(&mut self, reference: &str, at: &str, base: &str) -> Res<usize> {
        let fail = |why: &str| unsupported(at, "$ref", why);
        let (resource, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let start = match resource {
            "" => base.to_string(),
            _ => self.resources.get(resource).cloned().ok_or_else(|| fail("it refers to another document"))?,
        };
        let fragment = percent_decoded(fragment).ok_or_else(|| fail("its escapes are not valid"))?;
        let pointer = match fragment.strip_prefix('/') {
            Some(_) => format!("{start}{fragment}"),
            None if fragment.is_empty() => start,
            None => {
                let anchor = self.anchors.get(&(start, fragment));
                anchor.cloned().ok_or_else(|| fail("there is no such anchor"))?
            }
        };
        // An empty key behind the last slash is how some writers spell the root.
        let pointer = if pointer == "/" { String::new() } else { pointer };
        if let Some(&known) = self.known.get(&pointer) {
            return Ok(known);
        }
        let base = self.base_of(&pointer).ok_or_else(|| fail("there is nothing at that place"))?;
        let number = self.definitions.len();
        self.definitions.push(Definition { pointer: pointer.clone(), base, state: State::Untouched });
        self.known.insert(pointer, number);
        Ok(number)
    }

    fn base_of(&self, pointer: &str) -> Option<String> {
        let mut value = self.document;
        let (mut base, mut here) = (String::new(), String::new());
        for key in pointer.split('/').skip(1) {
            value = step(value, key)?;
            here = format!("{here}/{key}");
            if is_resource(value) {
                base = here.clone();
            }
        }
        Some(base)
    }

    fn definition(&mut self, number: usize) -> Res<Node> {
        let d = &mut self.definitions[number];
        match &d.state {
            State::Done(node) => return Ok(node.clone()),
            State::Busy => return Err(unsupported(&d.pointer, "$ref", "it leads back to itself through keywords beside it")),
            State::Untouched => {}
        }
        d.state = State::Busy;
        let (pointer, base) = (d.pointer.clone(), d.base.clone());
        let mut value = self.document;
        for key in pointer.split('/').skip(1) {
            value = step(value, key).unwrap_or(&Value::Null);
        }
        let node = self.parse(value, &pointer, &base)?;
        self.definitions[number].state = State::Done(node.clone());
        Ok(node)
    }

    /// What all of these definitions allow, written out one level.
    pub fn expand(&mut self, set: &Rc<BTreeSet<usize>>) -> Res<Node> {
        if let Some(node) = self.expanded.get(set) {
            return Ok(node.clone());
        }
        self.spend(1)?;
        let mut node = any();
        for &number in set.iter() {
            let next = self.definition(number)?;
            node = self.meet(&node, &next)?;
        }
        self.expanded.insert(set.clone(), node.clone());
        Ok(node)
    }

    /// Finds the places with names: `$id` (`id`) and `$anchor`.
    pub fn find_names(&mut self) {
        let mut todo: Vec<(&Value, String, String)> = vec![(self.document, String::new(), String::new())];
        while let Some((value, here, mut base)) = todo.pop() {
            if let Value::Object(map) = value {
                for key in ["$id", "id"] {
                    if let Some(id) = map.get(key).and_then(Value::as_str).filter(|id| !id.starts_with('#')) {
                        if here.is_empty() || is_resource(value) {
                            base = here.clone();
                            self.resources.insert(id.trim_end_matches('#').to_string(), here.clone());
                        }
                    }
                    if let Some(name) = map.get(key).and_then(Value::as_str).and_then(|id| id.strip_prefix('#')) {
                        self.anchors.insert((base.clone(), name.to_string()), here.clone());
                    }
                }
                if let Some(name) = map.get("$anchor").and_then(Value::as_str) {
                    self.anchors.insert((base.clone(), name.to_string()), here.clone());
                }
                for (key, inner) in map.iter().filter(|(k, _)| !matches!(k.as_str(), "enum" | "const" | "examples")) {
                    todo.push((inner, super::join(&here, key), base.clone()));
                }
            } else if let Value::Array(list) = value {
                todo.extend(list.iter().enumerate().map(|(i, v)| (v, format!("{here}/{i}"), base.clone())));
            }
        }
    }
}

fn is_resource(value: &Value) -> bool {
    value.get("$id").and_then(Value::as_str).is_some_and(|id| !id.starts_with('#'))
}

fn step<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(map) => map.get(&key.replace("~1", "/").replace("~0", "~")),
        Value::Array(list) => list.get(key.parse::<usize>().ok()?),
        _ => None,
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let digits = [bytes.next()?, bytes.next()?];
        out.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
    }
    String::from_utf8(out).ok()
}
