//! The evaluator: beside minijinja's own for templates at random, its limits, and operations beside their definitions.
//! tests/data/templates has what Python says of every filter and test.

mod beside_minijinja;
mod operations;

use super::value::live_bytes;
use super::{Fault, Limits, Template};

const WIDE: Limits = Limits { steps: 1 << 40, depth: 200, output: 1 << 24, memory: 1 << 28 };

fn render(source: &str, variables: &str, limits: Limits) -> Result<String, Fault> {
    Template::compile(source)?.render(variables, 0, limits)
}

/// Templates whose work is in steps, memory, output and depth.
const WORK: &[&str] = &[
    "{% for i in range(50) %}{% for j in range(i) %}{{ i * j }},{% endfor %}{% endfor %}",
    "{% set ns = namespace(s='') %}{% for i in range(40) %}{% set ns.s = ns.s ~ i %}{% endfor %}{{ ns.s }}",
    "{% macro m(n) %}{{ n }}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(12) }}",
    "{{ range(100) | map('string') | join('-') | upper | replace('1', 'one') }}",
    "{{ [[3, 1, 2], [1], []] | map('sort') | list | tojson(indent=2) }}",
    "{% set x %}{% filter upper %}a{{ 'b' * 30 }}{% endfilter %}{% endset %}{{ x[::-1] ~ x.split('B') | length }}",
];

/// The least value with which `render` succeeds.
fn least(most: u64, mut fits: impl FnMut(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, most);
    assert!(fits(high));
    while low < high {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// Above a bound a template renders, the same for every bound; below it fails with a limit and with nothing else.
#[test]
fn each_limit_is_sharp() {
    let with = |what: usize, n: u64| match what {
        0 => Limits { steps: n, ..WIDE },
        1 => Limits { depth: n as u32, ..WIDE },
        2 => Limits { output: n as usize, ..WIDE },
        _ => Limits { memory: n as usize, ..WIDE },
    };
    for source in WORK {
        let whole = render(source, "{}", WIDE).unwrap();
        for (what, most) in [1 << 40, 200, 1 << 24, 1 << 28].into_iter().enumerate() {
            let bound = least(most, |n| render(source, "{}", with(what, n)).is_ok());
            assert!(bound > 0, "{source}: no limit {what}");
            assert_eq!(render(source, "{}", with(what, bound)).unwrap(), whole);
            for n in [bound - 1, bound / 2, 0] {
                assert!(matches!(render(source, "{}", with(what, n)), Err(Fault::Limit(_))), "{source}: limit {what}, {n}");
            }
            if what == 2 {
                assert!(bound >= whole.len() as u64);
            }
        }
    }
}

/// Cycles of macros and scopes are taken apart, on success and on every failure.
#[test]
fn nothing_is_left_behind() {
    let cycles = "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}x{% endmacro %}{{ a() }}\
                  {% set ns = namespace(f=a) %}{% for i in [1, 2] %}{% macro c() %}{{ loop.index }}{% endmacro %}{{ c() }}{% endfor %}";
    for source in WORK.iter().chain([&cycles]) {
        for steps in (0..400).chain([1 << 40]) {
            let _ = render(source, r#"{"messages": [{"role": "user", "content": "hi"}]}"#, Limits { steps, ..WIDE });
            assert_eq!(live_bytes(), 0, "{source} with {steps} steps");
        }
    }
}
