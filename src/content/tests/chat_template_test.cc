// Chat templates: Python's meaning, limits, and where a folder's template is found.
#include <chrono>
#include <sstream>

#include "content/tests/test_data.h"
#include "content/text/chat_template.h"
#include "content/text/text_tools.h"

namespace tern::content {
namespace {

Expected<std::string> render(const std::string& source, const std::string& variables = "{}",
                             const TemplateLimits& limits = {}) {
  TERN_ASSIGN_OR_RETURN(const auto compiled, ChatTemplate::compile(source, limits));
  return compiled->render(variables, 1748779200);
}

TEST(ChatTemplate, EqualsPythonJinja) {
  const json::Value file = load_json(own_data("templates/cases.json"));
  const std::string variables = json::dump(file.at("variables"));
  const json::Array& cases = file.at("cases").as_array();
  ASSERT_GE(cases.size(), 80u);
  for (const json::Value& c : cases) {
    const std::string source(c.at("template").as_string());
    const auto got = render(source, variables);
    if (const json::Value* text = json::find(c.as_object(), "text")) {
      EXPECT_TRUE(got.ok()) << source << "\n" << (got.ok() ? "" : got.error().message);
      if (got.ok()) {
        EXPECT_EQ(*got, std::string(text->as_string())) << source;
      }
    } else {
      EXPECT_FALSE(got.ok()) << source << " gave " << (got.ok() ? *got : "");
    }
  }
}

// Every filter and test on none, undefined, empty and wrong types (tools/make_filter_matrix.py).
TEST(ChatTemplate, FiltersEqualPythonJinja) {
  const json::Value file = load_json(own_data("templates/filters.json"));
  const json::Array& values = file.at("values").as_array();
  size_t cases = 0;
  for (const json::Value& row : file.at("rows").as_array()) {
    const std::string expression(row.at(0).as_string());
    for (size_t i = 0; i < values.size(); ++i) {
      std::string source = "{{ " + expression + " }}";
      std::string value = "(";
      value.append(values[i].as_string()).append(")");
      source.replace(source.find('V'), 1, value);
      const json::Value& want = row.at(1).at(i);
      const auto got = render(source);
      const std::string shown = got.ok() ? *got : got.error().message;
      EXPECT_EQ(got.ok(), want.is_string()) << source << ": " << shown;
      if (got.ok() && want.is_string()) {
        EXPECT_EQ(shown, std::string(want.get_string())) << source;
      }
      ++cases;
    }
  }
  EXPECT_GE(cases, 3000u);
}

TEST(ChatTemplate, RaisedMessageReachesTheCaller) {
  const auto got = render("{{ raise_exception('roles must alternate') }}");
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(got.error().message.find("roles must alternate"), std::string::npos);
}

TEST(ChatTemplate, SyntaxErrorNamesTheLine) {
  const auto got = ChatTemplate::compile("ok\n{% if %}");
  ASSERT_FALSE(got.ok());
  EXPECT_NE(got.error().message.find("line 2"), std::string::npos) << got.error().message;
}

std::string repeat(const std::string& unit, size_t n) {
  std::string out;
  out.reserve(unit.size() * n);
  for (size_t i = 0; i < n; ++i) out += unit;
  return out;
}

// Published attacks on template engines and variations, by what they are after.
std::vector<std::string> endless_or_huge() {
  const std::string ns = "{% set ns = namespace(x='aaaaaaaa', l=[1]) %}";
  const std::string forever = "{% for i in range(1000000000) %}";
  return {
      "{{ 'a' * 1000000000 }}",
      "{{ 'a' * 10 ** 18 }}",
      "{{ [1] * 10 ** 18 }}",
      "{{ [[1] * 1000] * 100000000 }}",
      "{{ [] * 10 ** 18 }}{{ raise_exception('harmless') }}",
      "{{ 10 ** 10 ** 10 }}",
      forever + "x{% endfor %}",
      forever + "{% endfor %}",
      "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{{ c }}{% endfor %}{% endfor %}{% "
      "endfor %}",
      "{{ range(10 ** 15) | list }}",
      "{{ range(10 ** 15) | sum }}",
      "{{ range(10 ** 15) | join }}",
      "{{ 5 in range(10 ** 15) }}",
      ns + "{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
      ns + "{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      ns + "{% for i in range(99) %}{% set ns.x = ns.x.replace('a', ns.x) %}{% endfor %}",
      ns + "{% for i in range(99) %}{% set ns.x = ns.x | replace('a', ns.x) %}{% endfor %}",
      ns + "{% for i in range(99) %}{% set ns.x = ns.x.join([ns.x, ns.x]) %}{% endfor %}",
      ns + "{% for i in range(99) %}{% set ns.x = '{0}{0}'.format(ns.x) %}{% endfor %}",
      ns + "{% for i in range(99) %}{% set ns.x = '%s%s' % (ns.x, ns.x) %}{% endfor %}",
      ns + "{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
  };
}

// Small in memory, exponential when written out, compared or walked; and calls without an end.
std::vector<std::string> shared_or_recursive() {
  const std::string ns = "{% set ns = namespace(x='aaaaaaaa', l=[1]) %}";
  const std::string forever = "{% for i in range(1000000000) %}";
  return {
      ns + "{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
      ns + "{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | tojson }}",
      ns + "{% for i in range(99) %}{% set ns.l = {'a': ns.l, 'b': ns.l} %}{% endfor %}{{ ns.l | tojson(indent=4) }}",
      "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(99) %}{% set ns.a = [ns.a, ns.a] %}"
      "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
      ns + "{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}",
      ns + "{% set ns.x = ns %}",
      ns + "{% set ns.l = [ns] %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
      "{% macro m(x) %}{{ m(x ~ x) }}{{ m(x ~ x) }}{% endmacro %}{{ m('ab') }}",
      "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
      "{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}",
      "{% set ns = namespace(p=0) %}" + forever +
          "{% set p = ns.p %}{% macro m() %}{% endmacro %}{% set ns.p = m %}{% endfor %}",
      "{{ 'a'.center(10 ** 12) }}",
      "{{ 'a'.ljust(10 ** 12) }}",
      "{{ 'a'.zfill(10 ** 12) }}",
      "{{ 'a' | center(10 ** 12) }}",
      "{{ '%1000000000d' % 1 }}",
      "{{ '{:1000000000}'.format(1) }}",
      "{{ '{:.1000000000f}'.format(1.0) }}",
      "{{ 'x' | indent(10 ** 12) }}{{ raise_exception('harmless') }}",
      "{{ [1] | batch(10 ** 12, 0) }}",
      "{{ [1] | slice(10 ** 12) }}",
      "{{ [1] | tojson(indent=10 ** 9) }}{{ raise_exception('harmless') }}",
      "{{ [1] | tojson(indent='" + repeat(" ", 1000) + "') }}",
  };
}

// The parser and whoever drops the tree must survive.
std::vector<std::string> deep_syntax() {
  return {
      repeat("{% if 1 %}", 5500) + repeat("{% endif %}", 5500),
      "{% if 1 %}" + repeat("{% elif 1 %}", 20000) + "{% endif %}",
      "{{ " + repeat("(", 20000) + "1" + repeat(")", 20000) + " }}",
      "{{ " + repeat("[", 5000) + repeat("]", 5000) + " }}",
      "{{ " + repeat("not ", 100000) + "1 }}",
      "{{ " + repeat("-", 100000) + "1 }}",
      "{{ 1" + repeat("+1", 200000) + " }}",
      "{{ 'a'" + repeat("|e", 200000) + " }}",
      "{{ a" + repeat(".a", 200000) + " }}",
      "{{ a" + repeat("[0]", 200000) + " }}",
      "{{ a" + repeat("()", 200000) + " }}",
      "{{ " + repeat("1 if 1 else ", 50000) + "1 }}",
      repeat("{% for x in [1] %}", 3000) + repeat("{% endfor %}", 3000),
      repeat("{% set x %}", 3000) + repeat("{% endset %}", 3000),
      repeat("{% generation %}", 3000) + repeat("{% endgeneration %}", 3000),
  };
}

std::vector<std::string> forbidden() {
  return {
      "{% include 'x' %}",
      "{% import 'x' as y %}",
      "{% extends 'x' %}",
      "{{ ''.__class__.__mro__[1].__subclasses__() }}",
      "{{ self.__init__.__globals__ }}",
      "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
  };
}

// Each must end with an error, soon, in little memory (the memory limit of the library is set low here, so passing
// means that it held).
TEST(ChatTemplate, HostileTemplatesEnd) {
  TemplateLimits limits;
  limits.max_steps = 2'000'000;
  limits.max_memory_bytes = 16u << 20;
  limits.max_output_bytes = 4u << 20;
  for (const auto& sources : {endless_or_huge(), shared_or_recursive(), deep_syntax(), forbidden()}) {
    for (const std::string& source : sources) {
      const auto start = std::chrono::steady_clock::now();
      const auto got = render(source, "{}", limits);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      EXPECT_FALSE(got.ok()) << source.substr(0, 200);
      EXPECT_LT(took.count(), 20.0) << source.substr(0, 200);  // a hang, not a benchmark
    }
  }
}

TEST(ChatTemplate, HostileVariables) {
  std::string deep = "{\"messages\":" + repeat("[", 100000) + repeat("]", 100000) + "}";
  EXPECT_FALSE(render("{{ messages }}", deep).ok());
  EXPECT_FALSE(render("{{ messages }}", "[]").ok());
  EXPECT_FALSE(render("{{ messages }}", "{\"a\":").ok());
  EXPECT_FALSE(render("{{ messages }}", "{\"a\":\"\xFF\"}").ok());
  TemplateLimits limits;
  limits.max_variables_bytes = 100;
  const auto got = render("x", "{\"a\":\"" + repeat("x", 100) + "\"}", limits);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, ErrorCode::kTooLarge);
}

TEST(ChatTemplate, LimitsHaveTheirCode) {
  TemplateLimits limits;
  limits.max_output_bytes = 10;
  auto got = render("{{ 'a' * 11 }}", "{}", limits);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(*render("{{ 'a' * 10 }}", "{}", limits), "aaaaaaaaaa");
  limits = {};
  limits.max_template_bytes = 3;
  EXPECT_EQ(ChatTemplate::compile("abcd", limits).error().code, ErrorCode::kTooLarge);
  limits = {};
  limits.max_steps = 100;
  EXPECT_EQ(render("{% for i in range(1000) %}{% endfor %}", "{}", limits).error().code, ErrorCode::kTooLarge);
}

// Steps count the real work: one operation over a long text or list is as dear as the loop that would do the same.
TEST(ChatTemplate, StepsCountWork) {
  TemplateLimits limits;
  limits.max_steps = 10'000;
  const std::string text = "{% set x = 'a' * 200000 %}", wide = "{% set x = '\u00e9' * 100000 %}",
                    marks = "{% set x = '<\n ,' * 50000 %}", list = "{% set x = [2, 1] * 5000 %}";
  for (const std::string& made : {text, wide, marks, list}) EXPECT_TRUE(render(made, "{}", limits).ok()) << made;
  for (const std::string& source : {wide + "{{ x | upper | length }}",
                                    wide + "{{ x.swapcase() | length }}",
                                    text + "{{ x | title | length }}",
                                    text + "{{ x | capitalize | length }}",
                                    text + "{{ x | reverse | length }}",
                                    text + "{{ x[::-1] | length }}",
                                    text + "{{ x | wordcount }}",
                                    text + "{{ x | urlencode | length }}",
                                    text + "{{ x is lower }}",
                                    text + "{{ x.isalpha() }}",
                                    text + "{{ x.count('aa') }}",
                                    text + "{{ x.find('ab') }}",
                                    text + "{{ 'ab' in x }}",
                                    text + "{{ x.replace('a', 'b') | length }}",
                                    text + "{{ x | list | length }}",
                                    text + "{{ x.strip('abcdefghijklmnop') }}",
                                    text + "{{ x | trim(x) }}",
                                    text + "{{ x | tojson | length }}",
                                    text + "{{ x | pprint | length }}",
                                    text + "{{ (x % 1) | length }}",
                                    text + "{{ x.format(1) | length }}",
                                    marks + "{{ x | e | length }}",
                                    marks + "{{ x.split(',') | length }}",
                                    marks + "{{ x.split() | length }}",
                                    marks + "{{ x.splitlines() | length }}",
                                    marks + "{{ x | indent | length }}",
                                    list + "{{ x | sort | first }}",
                                    list + "{{ x | sum }}",
                                    list + "{{ x | unique | list | length }}",
                                    list + "{{ x | batch(2) | length }}",
                                    list + "{{ x | map('string') | join }}",
                                    list + "{{ x == x + [] }}",
                                    list + "{{ 3 in x }}",
                                    std::string("{{ range(20000) | list | length }}"),
                                    std::string("{{ '%.9999f' % 1.0 }}{{ '%.9999f' % 1.0 }}")}) {
    const auto got = render(source, "{}", limits);
    ASSERT_FALSE(got.ok()) << source;
    EXPECT_EQ(got.error().code, ErrorCode::kTooLarge) << source;
    EXPECT_NE(got.error().message.find("10000 steps"), std::string::npos) << source << ": " << got.error().message;
  }
  // Names are compared one by one: many of them cost more.
  std::string many;
  for (int i = 0; i < 3000; ++i) many += "{% set name" + std::to_string(i) + " = 1 %}";
  limits.max_steps = 100'000;
  EXPECT_FALSE(render(many, "{}", limits).ok());
  // Longer conversations may take more steps.
  limits.max_steps = 10'000;
  const std::string variables = "{\"x\":\"" + repeat("a", 200'000) + "\"}";
  EXPECT_TRUE(render("{{ x | upper | length }}", variables, limits).ok());
}

// An ordinary long conversation stays far from the limits.
TEST(ChatTemplate, LongConversationFits) {
  json::Array messages;
  for (int i = 0; i < 2000; ++i) {
    messages.push_back(json::Object{{"role", i % 2 ? "assistant" : "user"}, {"content", repeat("word ", 200)}});
  }
  const std::string variables = json::dump(json::Object{{"messages", std::move(messages)}});
  const auto got = render(
      "{% set ns = namespace(s='') %}{% for m in messages %}{% set ns.s = ns.s + m.role %}"
      "<|{{ m.role }}|>{{ m.content | trim }}\n{% endfor %}{{ ns.s | length }}",
      variables);
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_GT(got->size(), 2'000'000u);
}

TEST(ChatTemplate, WhereAFolderKeepsIt) {
  TempDir dir;
  EXPECT_EQ(find_templates(dir.path())->default_template, "");
  dir.write("tokenizer_config.json", R"({"chat_template": "from config"})");
  EXPECT_EQ(find_templates(dir.path())->default_template, "from config");
  dir.write(
      "chat_template.json",
      R"({"chat_template": [{"name": "default", "template": "json"}, {"name": "tool_use", "template": "tools"}]})");
  const auto set = find_templates(dir.path());
  EXPECT_EQ(set->choose(false), "json");
  EXPECT_EQ(set->choose(true), "tools");
  dir.write("chat_template.jinja", "file");
  EXPECT_EQ(find_templates(dir.path())->choose(true), "file");
  dir.write("chat_template.jinja", repeat("x", 2u << 20));
  EXPECT_EQ(find_templates(dir.path()).error().code, ErrorCode::kTooLarge);
  TempDir wrong;
  wrong.write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_EQ(find_templates(wrong.path()).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(*read_template("{{ a }}"), "{{ a }}");
  EXPECT_EQ(*read_template(dir.path() + "/tokenizer_config.json"), R"({"chat_template": "from config"})");
  EXPECT_EQ(read_template("/no/such/file").error().code, ErrorCode::kNotFound);
}

TEST(ChatTemplate, KwargsMayNotReplaceReservedNames) {
  const json::Value messages(json::Array{});
  for (const char* name : {"messages", "tools", "documents", "chat_template"}) {
    const json::Object kwargs{{name, 1}};
    RenderInput input;
    input.messages = &messages;
    input.kwargs = &kwargs;
    const auto got = render_variables(input, {});
    ASSERT_FALSE(got.ok()) << name;
    EXPECT_EQ(got.error().code, ErrorCode::kInvalidArgument);
  }
  const json::Object kwargs{{"enable_thinking", false}};
  RenderInput input;
  input.messages = &messages;
  input.kwargs = &kwargs;
  SpecialText special;
  special.named = {{"bos_token", "<s>"}};
  EXPECT_EQ(*render("{{ bos_token }}{{ enable_thinking }}{{ tools }}", *render_variables(input, special)),
            "<s>FalseNone");
}

TEST(TextTools, RenderLines) {
  std::istringstream in(
      "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"tools\": [{\"a\": 1}], \"add_generation_prompt\": "
      "false}\n"
      "{\"messages\": 5}\n"
      "not json\n"
      "{\"messages\": [], \"chat_template_kwargs\": {\"messages\": 1}}\n");
  std::ostringstream out;
  ASSERT_TRUE(run_render(own_data("tokenizers/byte_level"), "", in, out).ok());
  std::istringstream lines(out.str());
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, R"({"prompt":"<|user|>Hi<|end|>\n<|assistant|>"})");
  std::getline(lines, line);
  EXPECT_EQ(line, R"({"prompt":"TOOLS [{\"a\": 1}]\n<|user|>Hi<|end|>\n"})");
  for (int i = 0; i < 3; ++i) {
    std::getline(lines, line);
    EXPECT_TRUE(line.starts_with("{\"error\":")) << line;
  }
  EXPECT_FALSE(std::getline(lines, line));
  std::istringstream again("{\"messages\": [{\"content\": \"x\"}]}\n");
  std::ostringstream own;
  ASSERT_TRUE(run_render(own_data("tokenizers/byte_level"), "{{ messages[0].content }}!", again, own).ok());
  EXPECT_EQ(own.str(), "{\"prompt\":\"x!\"}\n");
  EXPECT_FALSE(run_render(own_data("tokenizers/tiktoken"), "", again, own).ok());
}

TEST(TextTools, TokenizeLines) {
  std::istringstream in(
      "{\"text\": \"Hi\"}\n{\"ids\": [0, 1]}\n{\"text\": \"\", \"add_special_tokens\": true}\n{\"ids\": [99999]}\n"
      "{\"ids\": [1.5]}\n{}\nnonsense\n");
  std::ostringstream out;
  ASSERT_TRUE(run_tokenize(own_data("tokenizers/sentencepiece_llama"), in, out, true).ok());
  std::istringstream lines(out.str());
  std::string line;
  std::getline(lines, line);
  EXPECT_TRUE(line.starts_with("{\"ids\":[")) << line;
  std::getline(lines, line);
  EXPECT_EQ(line, "{\"text\":\"<unk><s>\"}");
  std::getline(lines, line);
  EXPECT_EQ(line, "{\"ids\":[1]}");
  for (int i = 0; i < 4; ++i) {
    std::getline(lines, line);
    EXPECT_TRUE(line.starts_with("{\"error\":")) << line;
  }
  EXPECT_EQ(run_tokenize("/no/such/folder", in, out, true).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace tern::content
