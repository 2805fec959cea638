//! Chat templates: minijinja's parser, our evaluator.

mod arithmetic;
mod calls;
mod eval;
mod expr;
mod filters;
mod format;
mod functions;
mod limits;
mod methods;
mod ops;
mod pytext;
mod seqfilters;
mod strftime;
mod tests;
mod textfilters;
mod textmethods;
mod value;

#[cfg(test)]
mod unit_tests;

use minijinja::machinery::{self, ast::Stmt};
use minijinja::syntax::SyntaxConfig;

pub use limits::Limits;
use limits::{MAX_TAG_TOKENS, MAX_TREE_DEPTH};
pub use value::Fault;
use value::Res;

/// Stack of the thread that parses: the parser recurses once per `elif` and per operator.
const PARSE_STACK: usize = 512 << 20;

pub struct Template {
    tree: Option<Vec<Stmt<'static>>>,
    /// What the tree points into. Declared after it and dropped after it.
    _source: Box<str>,
}

// SAFETY: the tree is never changed after parsing; its constants are minijinja values, which are Send and Sync.
unsafe impl Send for Template {}
unsafe impl Sync for Template {}

impl Drop for Template {
    fn drop(&mut self) {
        self.tree = None;
    }
}

fn syntax() -> Res<SyntaxConfig> {
    let mut builder = SyntaxConfig::builder();
    builder.trim_blocks(true).lstrip_blocks(true);
    builder.build().map_err(|e| Fault::Bad(e.to_string()))
}

/// Hugging Face's `{% generation %}` marks what the assistant says; for a prompt it means nothing.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        let inner_start = usize::from(tag.starts_with(['-', '+']));
        let inner = tag[inner_start..].trim_start();
        let word_at = tag.len() - inner.len();
        let replacement = [("generation", " if true "), ("endgeneration", " endif ")].iter().find_map(|(word, instead)| {
            let closing = inner.strip_prefix(word)?.trim_start();
            ["%}", "-%}", "+%}"].iter().any(|c| closing.starts_with(c)).then_some((*instead, closing))
        });
        if let Some((instead, closing)) = replacement {
            out.push_str(&tag[..inner_start]);
            out.push_str(instead);
            rest = closing;
            continue;
        }
        out.push_str(&tag[..word_at]);
        rest = &tag[word_at..];
    }
    out.push_str(rest);
    out
}

fn check_tags(source: &str) -> Res<()> {
    use machinery::Token;
    let mut tokens = 0usize;
    for item in machinery::tokenize(source, false, syntax()?) {
        match item {
            Ok((Token::BlockStart | Token::VariableStart, _)) => tokens = 0,
            Ok(_) => tokens += 1,
            Err(e) => return Err(Fault::Bad(describe(&e))),
        }
        if tokens > MAX_TAG_TOKENS {
            return Err(Fault::Limit(format!("a tag of the template has more than {MAX_TAG_TOKENS} tokens")));
        }
    }
    Ok(())
}

fn describe(e: &minijinja::Error) -> String {
    let detail = e.detail().map_or_else(|| e.kind().to_string(), |d| d.to_string());
    match e.line() {
        Some(line) => format!("line {line}: {detail}"),
        None => detail,
    }
}

impl Template {
    pub fn compile(source: &str) -> Res<Template> {
        check_tags(source)?;
        let source: Box<str> = without_generation_tags(source).into();
        // SAFETY: `_source` lives as long as the tree that borrows from it and is never touched.
        let text: &'static str = unsafe { &*(&*source as *const str) };
        let tree = std::thread::Builder::new()
            .stack_size(PARSE_STACK)
            .spawn(move || {
                let tree = machinery::parse(text, "chat template", syntax()?).map_err(|e| Fault::Bad(describe(&e)))?;
                let Stmt::Template(root) = &tree else { return value::bad("no template") };
                // A tree that is too deep would overflow the stack of whoever drops or walks it: it ends here.
                if depth::of(&root.children) > MAX_TREE_DEPTH {
                    return Err(Fault::Limit(format!("the template nests more than {} levels deep", MAX_TREE_DEPTH)));
                }
                Ok(vec![tree])
            })
            .map_err(|e| Fault::Bad(format!("no thread for parsing the template: {e}")))?
            .join()
            .unwrap_or_else(|_| value::bad("the template cannot be parsed"))?;
        Ok(Template { tree: Some(tree), _source: source })
    }

    /// The prompt for variables given as one JSON object.
    pub fn render(&self, variables: &str, unix_seconds: i64, limits: Limits) -> Res<String> {
        let json: serde_json::Value =
            serde_json::from_str(variables).map_err(|e| Fault::Bad(format!("the variables are not valid JSON: {e}")))?;
        let serde_json::Value::Object(object) = json else { return value::bad("the variables must be one JSON object") };
        value::reset_live();
        let held = |v| value::from_json(v, limits.memory);
        let root = object.into_iter().map(|(k, v)| Ok((value::V::str(k), held(v)?))).collect::<Res<Vec<_>>>()?;
        let mut eval = eval::Eval::new(limits, root, unix_seconds);
        eval.run(self.tree.as_deref().unwrap_or_default())
    }
}

mod depth {
    //! How deep a syntax tree is, looking no deeper than MAX.
    use super::limits::MAX_TREE_DEPTH as MAX;
    use minijinja::machinery::ast::{CallArg, Expr, Stmt};

    pub fn of(stmts: &[Stmt]) -> usize {
        body(stmts, 0)
    }

    fn body(stmts: &[Stmt], d: usize) -> usize {
        if d > MAX {
            return d;
        }
        stmts.iter().map(|s| stmt(s, d + 1)).max().unwrap_or(d)
    }

    fn stmt(s: &Stmt, d: usize) -> usize {
        match s {
            Stmt::EmitExpr(s) => expr(&s.expr, d),
            Stmt::ForLoop(s) => {
                let filter = s.filter_expr.as_ref().map_or(d, |f| expr(f, d));
                expr(&s.iter, d).max(expr(&s.target, d)).max(filter).max(body(&s.body, d)).max(body(&s.else_body, d))
            }
            Stmt::IfCond(s) => expr(&s.expr, d).max(body(&s.true_body, d)).max(body(&s.false_body, d)),
            Stmt::WithBlock(s) => {
                s.assignments.iter().map(|a| expr(&a.0, d).max(expr(&a.1, d))).max().unwrap_or(d).max(body(&s.body, d))
            }
            Stmt::Set(s) => expr(&s.target, d).max(expr(&s.expr, d)),
            Stmt::SetBlock(s) => s.filter.as_ref().map_or(d, |f| expr(f, d)).max(expr(&s.target, d)).max(body(&s.body, d)),
            Stmt::AutoEscape(s) => expr(&s.enabled, d).max(body(&s.body, d)),
            Stmt::FilterBlock(s) => expr(&s.filter, d).max(body(&s.body, d)),
            Stmt::Macro(m) => exprs(&m.args, d).max(exprs(&m.defaults, d)).max(body(&m.body, d)),
            Stmt::CallBlock(c) => {
                let m = &c.macro_decl;
                expr(&c.call.expr, d)
                    .max(args(&c.call.args, d))
                    .max(exprs(&m.args, d))
                    .max(exprs(&m.defaults, d))
                    .max(body(&m.body, d))
            }
            Stmt::Do(c) => expr(&c.call.expr, d).max(args(&c.call.args, d)),
            Stmt::Template(t) => body(&t.children, d),
            _ => d,
        }
    }

    fn exprs(list: &[Expr], d: usize) -> usize {
        list.iter().map(|x| expr(x, d)).max().unwrap_or(d)
    }

    fn args(list: &[CallArg], d: usize) -> usize {
        let one = |a: &CallArg| match a {
            CallArg::Pos(x) | CallArg::Kwarg(_, x) | CallArg::PosSplat(x) | CallArg::KwargSplat(x) => expr(x, d),
        };
        list.iter().map(one).max().unwrap_or(d)
    }

    fn expr(x: &Expr, d: usize) -> usize {
        if d > MAX {
            return d;
        }
        let d = d + 1;
        let some = |x: &Option<Expr>| x.as_ref().map_or(d, |x| expr(x, d));
        match x {
            Expr::Var(_) | Expr::Const(_) => d,
            Expr::Slice(s) => expr(&s.expr, d).max(some(&s.start)).max(some(&s.stop)).max(some(&s.step)),
            Expr::UnaryOp(u) => expr(&u.expr, d),
            Expr::BinOp(b) => expr(&b.left, d).max(expr(&b.right, d)),
            Expr::Compare(c) => c.ops.iter().map(|o| expr(&o.expr, d)).max().unwrap_or(d).max(expr(&c.expr, d)),
            Expr::IfExpr(i) => expr(&i.test_expr, d).max(expr(&i.true_expr, d)).max(some(&i.false_expr)),
            Expr::Filter(f) => some(&f.expr).max(args(&f.args, d)),
            Expr::Test(t) => expr(&t.expr, d).max(args(&t.args, d)),
            Expr::GetAttr(a) => expr(&a.expr, d),
            Expr::GetItem(i) => expr(&i.expr, d).max(expr(&i.subscript_expr, d)),
            Expr::Call(c) => expr(&c.expr, d).max(args(&c.args, d)),
            Expr::List(l) => exprs(&l.items, d),
            Expr::Tuple(t) => exprs(&t.items, d),
            Expr::Map(m) => exprs(&m.keys, d).max(exprs(&m.values, d)),
        }
    }
}
