//! Tests over single bytes: what a grammar accepts, refuses and how it fails.

use std::sync::Arc;

use super::{Compiled, Env, Error, Kind, Limits, Matcher, Options};

fn env() -> Arc<Env> {
    Arc::new(Env::bytes().unwrap())
}

fn compile_with(kind: Kind, text: &str, options: Options) -> Result<Arc<Compiled>, Error> {
    Compiled::new(env(), kind, text, options, &Limits::default()).map(Arc::new)
}

fn compile(kind: Kind, text: &str) -> Result<Arc<Compiled>, Error> {
    compile_with(kind, text, Options::default())
}

fn accepts(c: &Arc<Compiled>, text: &str) -> bool {
    let mut m = Matcher::new(c.clone());
    for b in text.bytes() {
        if m.accepts(&[u32::from(b)]).unwrap() == 0 {
            return false;
        }
        m.consume(&[u32::from(b)]).unwrap();
    }
    m.is_accepting()
}

/// Texts with a leading '!' are refused, the others accepted.
fn check(kind: Kind, grammar: &str, texts: &[&str]) {
    let c = compile(kind, grammar).unwrap_or_else(|e| panic!("{grammar}: {e:?}"));
    for text in texts {
        let (want, text) = text.strip_prefix('!').map_or((true, *text), |t| (false, t));
        assert_eq!(accepts(&c, text), want, "{grammar} with {text}");
    }
}

fn schema(text: &str, texts: &[&str]) {
    check(Kind::JsonSchema, text, texts);
}

fn refused(text: &str, words: &str) {
    let e = compile(Kind::JsonSchema, text).err().unwrap_or_else(|| panic!("{text} is enforced"));
    assert!(matches!(e, Error::Unsupported(_)) && e.message().contains(words), "{text}: {e:?}");
}

#[test]
fn keywords_in_place() {
    schema(r#"{"allOf":[{"type":"integer"},{"minimum":3}]}"#, &["3", "!2", "!\"a\""]);
    schema(r#"{"type":"string","enum":["a","b"],"maxLength":1,"not":{"const":"b"}}"#, &["\"a\"", "!\"b\""]);
    schema(r#"{"not":{"type":"object"}}"#, &["1", "[]", "!{}"]);
    schema(r#"{"type":"string","not":{"enum":["ab","ac"]}}"#, &["\"\"", "\"a\"", "\"abc\"", "!\"ab\"", "!\"ac\""]);
    schema(
        r#"{"if":{"properties":{"a":{"const":1}},"required":["a"]},"then":{"required":["b"]}}"#,
        &["{}", r#"{"a":2}"#, r#"{"a":1,"b":0}"#, r#"!{"a":1}"#],
    );
    schema(r#"{"const":{"a":[1,null]}}"#, &[r#"{"a":[1,null]}"#, r#"!{"a":[1]}"#]);
}

#[test]
fn one_of_needs_disjoint_alternatives() {
    schema(r#"{"oneOf":[{"type":"string"},{"type":"integer"}]}"#, &["1", "\"a\"", "!null"]);
    schema(
        r##"{"oneOf":[{"properties":{"k":{"const":"a"}},"required":["k"],"type":"object"},
            {"$ref":"#/$defs/b"}],"$defs":{"b":{"type":"object","properties":{"k":{"const":"b"},"x":{"type":"null"}},
            "required":["k","x"]}}}"##,
        &[r#"{"k":"a"}"#, r#"{"k":"b","x":null}"#, r#"!{"k":"b"}"#],
    );
    schema(r#"{"oneOf":[{"type":"number","maximum":1},{"type":"number","exclusiveMinimum":1}]}"#, &["1", "2"]);
    refused(r#"{"oneOf":[{"type":"integer"},{"minimum":2}]}"#, "\"oneOf\"");
    refused(r#"{"properties":{"a/b":{"oneOf":[{"required":["a"]},{"required":["b"]}]}}}"#, "/properties/a~1b");
}

#[test]
fn dependencies_and_absence() {
    let s = r#"{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},
        "additionalProperties":false,"dependencies":{"a":["b"]}}"#;
    schema(s, &["{}", r#"{"b":1}"#, r#"{"a":1,"b":2}"#, r#"!{"a":1}"#]);
    let s = s.replace("dependencies", "dependentRequired");
    schema(&s, &[r#"{"a":1,"b":2}"#, r#"!{"a":1}"#]);
    schema(
        r#"{"type":"object","properties":{"a":{"type":"integer"}},"not":{"required":["a"]}}"#,
        &["{}", r#"{"c":1}"#, r#"!{"a":1}"#, r#"!{"\u0061":1}"#],
    );
    schema(
        r#"{"dependentSchemas":{"a":{"properties":{"b":{"type":"string"}}}}}"#,
        &["3", r#"{"a":1,"b":"x"}"#, r#"!{"a":1,"b":2}"#, r#"{"b":2}"#],
    );
}

#[test]
fn counts_of_properties() {
    let s = r#"{"type":"object","properties":{"a":{},"b":{},"c":{}},"additionalProperties":false,"minProperties":2}"#;
    schema(s, &[r#"{"a":1,"c":1}"#, r#"{"a":1,"b":1,"c":1}"#, r#"!{"a":1}"#]);
    let s = s.replace("minProperties", "maxProperties");
    schema(&s, &["{}", r#"{"a":1,"c":1}"#, r#"!{"a":1,"b":1,"c":1}"#]);
    schema(
        r#"{"type":"object","properties":{"a":{"type":"null"}},"minProperties":1}"#,
        &[r#"{"a":null}"#, r#"{"z":1}"#, "!{}", r#"!{"a":1}"#],
    );
    refused(r#"{"type":"object","minProperties":2}"#, "minProperties");
    schema(r#"{"type":"object","propertyNames":{"pattern":"^x"}}"#, &[r#"{"xa":1}"#, r#"!{"a":1}"#]);
    schema(r#"{"type":"object","propertyNames":{"enum":["u","v"]}}"#, &[r#"{"u":1}"#, r#"!{"w":1}"#]);
}

#[test]
fn references() {
    let tree = r##"{"$defs":{"t":{"type":"object","properties":{"l":{"$ref":"#/$defs/t"},"v":{"type":"integer"}},
        "required":["v"],"additionalProperties":false}},"$ref":"#/$defs/t"}"##;
    schema(tree, &[r#"{"v":1}"#, r#"{"l":{"v":2},"v":1}"#, r#"!{"l":{},"v":1}"#]);
    schema(
        r##"{"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],"$defs":{
            "a":{"type":"object","properties":{"c":{"$ref":"#/$defs/a"},"x":{"type":"integer"}}},
            "b":{"type":"object","properties":{"c":{"$ref":"#/$defs/b"},"x":{"minimum":3}}}}}"##,
        &[r#"{"c":{"x":3},"x":4}"#, r#"!{"c":{"x":2}}"#],
    );
    schema(r##"{"$defs":{"a~b/c%":{"type":"null"}},"$ref":"#/$defs/a~0b~1c%25"}"##, &["null", "!1"]);
    schema(r##"{"$defs":{"x":{"$anchor":"here","type":"null"}},"$ref":"#here"}"##, &["null", "!1"]);
    for loop_ in [r##"{"$ref":"#"}"##, r##"{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}"##] {
        assert!(matches!(compile(Kind::JsonSchema, loop_), Err(Error::Invalid(_))), "{loop_}");
    }
    refused(r#"{"$ref":"http://example.com/x"}"#, "$ref");
    refused(r##"{"$ref":"#/nowhere"}"##, "$ref");
    let endless = r##"{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}"##;
    assert!(matches!(compile(Kind::JsonSchema, endless), Err(Error::Invalid(_))));
}

#[test]
fn what_cannot_be_enforced() {
    for keyword in [r#""uniqueItems":true"#, r#""contains":{}"#] {
        refused(&format!(r#"{{"type":"array",{keyword}}}"#), keyword.split('"').nth(1).unwrap());
    }
    refused(r#"{"type":"string","pattern":"(?=a)b"}"#, "pattern");
    refused(r#"{"not":{"type":"integer"}}"#, "not");
    refused(r#"{"allOf":[{}],"unevaluatedProperties":false}"#, "unevaluatedProperties");
    refused(r#"{"enum":[9007199254740993]}"#, "2^53");
    schema(r#"{"type":"string","format":"no-such"}"#, &["\"x\""]);
    schema(r#"{"type":"array","uniqueItems":true,"maxItems":1}"#, &["[1]", "![1,1]"]);
    let lenient = Options { lenient: true, ..Options::default() };
    let c = compile_with(Kind::JsonSchema, r#"{"type":"array","uniqueItems":true}"#, lenient).unwrap();
    assert!(c.warnings[0].contains("uniqueItems") && accepts(&c, "[1,1]"));
}

#[test]
fn white_space_is_bounded() {
    let spaces = " ".repeat(40);
    schema("{\"type\":\"array\"}", &[&format!("[{spaces}1]"), &format!("![{spaces} 1]")]);
    let c = compile_with(Kind::JsonSchema, "{}", Options { tight: true, ..Options::default() }).unwrap();
    assert!(accepts(&c, "[1,2]") && !accepts(&c, "[1, 2]"));
    let c = compile_with(Kind::JsonSchema, r#"{"properties":{"a":{}}}"#, Options { closed: true, ..Options::default() });
    assert!(!accepts(&c.unwrap(), r#"{"b":1}"#));
}

#[test]
fn other_kinds() {
    check(Kind::JsonObject, "", &["{}", r#"{"a":[1]}"#, "![]"]);
    check(Kind::Regex, "[a-z]+(ab|c)*", &["x", "xab", "!", "!9"]);
    check(Kind::Choice, r#"["yes","no \"q\""]"#, &["yes", "no \"q\"", "!ye"]);
    check(Kind::Lark, "start: \"a\" start | \"b\"", &["aab", "!aa"]);
    check(Kind::Lark, "root ::= [a-c]+ (\"-\" item)*\nitem ::= \"x\" | \"\\\"\" # end", &["ab-x", "a-\"", "!-x"]);
    check(Kind::Lark, "root ::= \"(\" root \")\" | [0-9]{1,2}", &["((12))", "!((12)", "!123"]);
    for (kind, text) in [
        (Kind::Choice, "[]"),
        (Kind::Choice, "[1]"),
        (Kind::Regex, "(a"),
        (Kind::Lark, "start: x"),
        (Kind::Lark, "root ::= x"),
        (Kind::JsonSchema, "{"),
        (Kind::JsonSchema, "[]"),
        (Kind::JsonSchema, r#"{"type":"nope"}"#),
        (Kind::StructuralTag, "{}"),
    ] {
        assert!(matches!(compile(kind, text), Err(Error::Invalid(_))), "{kind:?} {text}: {:?}", compile(kind, text).err());
    }
}

#[test]
fn structural_tags() {
    let old = r#"{"type":"structural_tag","structures":[{"begin":"<f=a>","schema":{"type":"integer"},"end":"</f>"},
        {"begin":"<f=b>","schema":{"type":"null"},"end":"</f>"}],"triggers":["<f="]}"#;
    check(Kind::StructuralTag, old, &["", "hello <f", "x<f=a>1</f>y<f=b>null</f>", "!x<f=c>", "!<f=a>null</f>", "!<f="]);
    let new = r#"{"type":"structural_tag","format":{"type":"sequence","elements":[
        {"type":"tag","begin":"<t>","content":{"type":"any_text"},"end":"</t>"},
        {"type":"or","elements":[{"type":"const_string","value":"ok"},{"type":"regex","pattern":"[0-9]+"}]}]}}"#;
    check(Kind::StructuralTag, new, &["<t>free</t>ok", "<t></t>12", "!<t>free</t>no", "!ok"]);
    let tags = r#"{"format":{"type":"tags_with_separator","separator":",","tags":[
        {"begin":"(","content":{"type":"json_schema","json_schema":{"type":"boolean"}},"end":")"}]}}"#;
    check(Kind::StructuralTag, tags, &["", "(true)", "(true),(false)", "!(true),", "!(1)"]);
    let bad = old.replace("\"<f=\"]", "\"<g=\"]");
    assert!(matches!(compile(Kind::StructuralTag, &bad), Err(Error::Invalid(_))));
    let bad = old.replace("{\"type\":\"null\"}", "{\"uniqueItems\":true}");
    let e = compile(Kind::StructuralTag, &bad).err().unwrap();
    assert!(matches!(&e, Error::Unsupported(m) if m.contains("uniqueItems")), "{e:?}");
}

#[test]
fn matcher_goes_back_and_ahead() {
    let c = compile(Kind::Choice, r#"["abc","abd"]"#).unwrap();
    let mut m = Matcher::new(c.clone());
    let mut words = vec![0u32; 12];
    m.mask(&mut words).unwrap();
    assert_eq!(words.iter().map(|w| w.count_ones()).sum::<u32>(), 1);
    assert_eq!(words[(b'a' / 32) as usize], 1 << (b'a' % 32));
    let ids = [u32::from(b'a'), u32::from(b'b'), u32::from(b'x')];
    let mut many = vec![0u32; 48];
    assert_eq!(m.masks(&ids, 12, &mut many).unwrap(), 3);
    assert_eq!(many[24 + 3], 0b11000);
    m.consume(&ids[..2]).unwrap();
    m.roll_back(1).unwrap();
    m.consume(&ids[1..2]).unwrap();
    m.consume(&[u32::from(b'd')]).unwrap();
    assert!(m.is_stopped() && m.is_accepting());
    m.mask(&mut words).unwrap();
    assert_eq!(words[8], 1);
    m.roll_back(1).unwrap();
    assert!(m.consume(&[u32::from(b'x')]).is_err());
    assert!(m.is_failed() && m.mask(&mut words).is_err());
    // Others go on.
    assert!(accepts(&c, "abc"));
}

#[test]
fn schemas_inside_lark() {
    let closed = Options { closed: true, tight: true, ..Options::default() };
    let text = r#"start: "x" a | /y%json\{/ // %json { is text here
a: %json {"type":"object","properties":{"}":{"type":"boolean"}}} "z""#;
    let c = compile_with(Kind::Lark, text, closed).unwrap();
    for (text, good) in [
        (r#"x{"}":true}z"#, true),
        (r#"x{ "}":true}z"#, false),
        (r#"x{"}":true,"b":1}z"#, false),
        ("x{}z", true),
        ("y%json{", true),
    ] {
        assert_eq!(accepts(&c, text), good, "{text}");
    }
    for (text, words) in [
        (r#"start: %json {"uniqueItems":true,"type":"array"}"#, "uniqueItems"),
        (r#"start: %json {"a":"#, ""),
        (r#"start: %json 1"#, "%json"),
        (r#"start: %json {"$ref":"http://a/b"}"#, "$ref"),
    ] {
        let e = compile_with(Kind::Lark, text, closed).err().unwrap_or_else(|| panic!("{text} compiles"));
        assert!(e.message().contains(words), "{text}: {e:?}");
    }
    let lenient = Options { lenient: true, ..Options::default() };
    let c = compile_with(Kind::Lark, r#"start: %json {"uniqueItems":true,"type":"array"}"#, lenient).unwrap();
    assert_eq!(c.warnings.len(), 1);
}

#[test]
fn closed_objects_are_closed_when_all_is_put_together() {
    let closed = Options { closed: true, tight: true, ..Options::default() };
    for (text, good, bad) in [
        (
            r#"{"allOf":[{"properties":{"a":{}},"required":["a"]},{"properties":{"b":{}},"required":["b"]}]}"#,
            r#"{"a":1,"b":2}"#,
            r#"{"a":1,"b":2,"c":3}"#,
        ),
        (r#"{"properties":{"a":{}},"allOf":[{"required":["a"]}]}"#, r#"{"a":1}"#, r#"{"a":1,"c":3}"#),
        (r#"{"type":"object","properties":{"a":{}},"required":["b"]}"#, r#"{"a":1,"b":[]}"#, r#"{"a":1,"b":1,"c":3}"#),
        (r#"{"properties":{"a":{}},"additionalProperties":true}"#, r#"{"c":1}"#, r#"{"c":1"#),
        (r#"{"type":"object"}"#, r#"{"c":1}"#, "[]"),
    ] {
        let c = compile_with(Kind::JsonSchema, text, closed).unwrap_or_else(|e| panic!("{text}: {e:?}"));
        assert!(accepts(&c, good), "{text}: {good}");
        assert!(!accepts(&c, bad), "{text}: {bad}");
    }
}
