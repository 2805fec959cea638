//! Templates at random, in the part of the language where minijinja's evaluator and Python agree: integers without overflow,
//! divisors above zero, no printed truth values, and nothing set within `else` of a loop or a set block (minijinja lets it
//! out).

use minijinja::{context, Environment};

use super::super::value::live_bytes;
use super::{render, WIDE};
use crate::random_texts::Random;

struct Maker<'r> {
    r: &'r mut Random,
    /// Loop variables in reach.
    names: Vec<String>,
}

impl Maker<'_> {
    fn int(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match self.r.below(4) {
                0 if !self.names.is_empty() => self.names[self.r.below(self.names.len())].clone(),
                1 => self.r.pick(&["i", "j", "xs[0]", "xs[1]", "m.a", "m['b']"]).to_string(),
                _ => self.r.below(20).to_string(),
            };
        }
        let d = depth - 1;
        match self.r.below(8) {
            0 => format!("({} + {})", self.int(d), self.int(d)),
            1 => format!("({} - {})", self.int(d), self.int(d)),
            2 => format!("({} * {})", self.int(d), self.int(d)),
            3 => format!("({} // {})", self.int(d), 1 + self.r.below(9)),
            4 => format!("({} % {})", self.int(d), 1 + self.r.below(9)),
            5 => format!("(-{})", self.int(d)),
            6 => format!("({} if {} else {})", self.int(d), self.truth(d), self.int(d)),
            _ => format!("[{}, {}, {}][{}]", self.int(d), self.int(d), self.int(d), self.r.below(3)),
        }
    }

    fn truth(&mut self, depth: usize) -> String {
        let d = depth.saturating_sub(1);
        let order = self.r.pick(&["<", "<=", ">", ">=", "==", "!="]);
        match self.r.below(if depth == 0 { 3 } else { 8 }) {
            0 => format!("{} {order} {}", self.int(d), self.int(d)),
            1 => format!("{} {} xs", self.int(d), self.r.pick(&["in", "not in"])),
            2 => self.r.pick(&["yes", "no", "xs", "empty", "none", "s is defined", "nobody is defined", "i is odd"]).to_string(),
            3 => format!("({} and {})", self.truth(d), self.truth(d)),
            4 => format!("({} or {})", self.truth(d), self.truth(d)),
            5 => format!("(not {})", self.truth(d)),
            6 => format!("{} {order} {}", self.text(d), self.text(d)),
            _ => format!("'{}' in {}", self.r.pick(&["a", "be", "", "é"]), self.text(d)),
        }
    }

    fn text(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.r.pick(&["s", "'ab'", "'日本'", "''", "\"q'\"", "m.text"]).to_string();
        }
        let d = depth - 1;
        match self.r.below(4) {
            0 => format!("({} ~ {})", self.text(d), self.text(d)),
            1 => format!("({} ~ {})", self.text(d), self.int(d)),
            2 => format!("({})[{}:{}]", self.text(d), self.r.below(3), self.r.pick(&["", "2", "5", "-1"])),
            _ => format!("({} if {} else {})", self.text(d), self.truth(d), self.text(d)),
        }
    }

    fn body(&mut self, depth: usize) -> String {
        (0..1 + self.r.below(3)).map(|_| self.statement(depth)).collect()
    }

    fn statement(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match self.r.below(3) {
                0 => format!("{{{{ {} }}}}", self.int(2)),
                1 => format!("{{{{- {} -}}}} ", self.text(2)),
                _ => " plain\n ".to_string(),
            };
        }
        let d = depth - 1;
        match self.r.below(6) {
            0 => format!(
                "{{% if {} %}}{}{{% elif {} %}}{}{{% else %}}{}{{% endif %}}",
                self.truth(2),
                self.body(d),
                self.truth(1),
                self.body(d),
                self.body(d)
            ),
            1 | 2 => self.a_loop(d),
            3 => format!("{{% set i = {} %}}{}", self.int(2), self.body(d)),
            4 => format!("{{% set s %}}{}{{% endset %}}{{{{ s }}}}", self.body(0)),
            _ => format!("{{% with j = {} %}}{}{{% endwith %}}", self.int(2), self.body(d)),
        }
    }

    fn a_loop(&mut self, depth: usize) -> String {
        let name = format!("v{}", self.names.len());
        let over = self.r.pick(&["xs", "[1, 2, 3]", "empty", "[i, j]", "xs[1:]"]);
        let condition = if self.r.below(3) == 0 { format!(" if {name} % 2 == 1") } else { String::new() };
        let otherwise = if self.r.below(2) == 0 { format!("{{% else %}}{}", self.statement(0)) } else { String::new() };
        self.names.push(name.clone());
        let inside = self.body(depth);
        let (order, word) = (self.r.pick(&[">", "=="]), self.r.pick(&["break", "continue"]));
        let stop = format!("{{% if loop.index {order} 3 %}}{{% {word} %}}{{% endif %}}");
        self.names.pop();
        format!("{{% for {name} in {over}{condition} %}}{{{{ loop.index0 }}}}/{{{{ loop.length }}}}:{stop}{inside};{otherwise}{{% endfor %}}")
    }
}

#[test]
fn templates_at_random_agree() {
    let mut environment = Environment::new();
    environment.set_syntax(super::super::syntax().unwrap());
    environment.add_test("odd", |v: i64| v.rem_euclid(2) == 1);
    environment.add_test("defined", |v: &minijinja::Value| !v.is_undefined());
    let variables = r#"{"i": 7, "j": -3, "xs": [4, -5, 6, 11], "empty": [], "yes": true, "no": false, "s": "bear é日", "m": {"a": 2, "b": -9, "text": "be"}}"#;
    let m = context! { a => 2, b => -9, text => "be" };
    let values = context! { i => 7, j => -3, xs => vec![4, -5, 6, 11], empty => Vec::<i64>::new(), yes => true, no => false, s => "bear é日", m => m };
    let mut r = Random::new(1);
    let (mut failures, mut bytes) = (0, 0);
    for _ in 0..3000 {
        let source = Maker { r: &mut r, names: Vec::new() }.body(3);
        let ours = render(&source, variables, WIDE);
        assert_eq!(live_bytes(), 0);
        match (ours, environment.render_str(&source, values.clone())) {
            (Ok(ours), Ok(theirs)) => {
                assert_eq!(ours, theirs, "{source}");
                bytes += ours.len();
            }
            (Err(_), Err(_)) => failures += 1,
            (ours, theirs) => panic!("{source}\n{ours:?}\n{theirs:?}"),
        }
    }
    assert!(failures < 300 && bytes > 100_000, "{failures} failures, {bytes} bytes");
}
