#include "content/grammar/compiler.h"

#include <utility>

namespace tern::content {
namespace {

std::string key_of(const GrammarSpec& spec) {
  std::string key;
  key.reserve(spec.text.size() + 2);
  key.push_back(static_cast<char>('0' + static_cast<int>(spec.kind)));
  key.push_back(static_cast<char>('0' + spec.options.tight + 2 * spec.options.closed + 4 * spec.options.lenient));
  key += spec.text;
  return key;
}

// What the text is to blame for stays so.
bool lasting(const Error& error) {
  return error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kUnsupported ||
         error.code == ErrorCode::kTooLarge;
}

}  // namespace

GrammarCompiler::GrammarCompiler(MakeVocabulary make_vocabulary, const GrammarCompilerOptions& options)
    : make_vocabulary_(std::move(make_vocabulary)), options_(options) {}

GrammarCompiler::Result GrammarCompiler::make(const GrammarSpec& spec) {
  {
    const std::lock_guard lock(vocabulary_mutex_);
    if (vocabulary_ == nullptr) {
      auto made = make_vocabulary_();
      if (!made.ok())
        return make_error(ErrorCode::kInternal, "guided decoding has no vocabulary: " + made.error().message);
      vocabulary_ = *std::move(made);
    }
  }
  return CompiledGrammar::compile(*vocabulary_, spec, options_.limits);
}

GrammarCompiler::Result GrammarCompiler::result(const Entry& entry) {
  if (entry.grammar) return entry.grammar;
  return entry.error;
}

GrammarCompiler::Result GrammarCompiler::compile(const GrammarSpec& spec) {
  // Before the text is copied into a key.
  if (spec.text.size() > options_.limits.text_bytes) {
    return make_error(ErrorCode::kTooLarge,
                      "the grammar is longer than " + std::to_string(options_.limits.text_bytes) + " bytes");
  }
  std::string key = key_of(spec);
  std::unique_lock lock(mutex_);
  if (auto found = entries_.find(key); found != entries_.end()) {
    const std::shared_ptr<Entry> entry = found->second;
    ++stats_.hits;
    changed_.wait(lock, [&] { return entry->ready; });
    if (entry->listed) order_.splice(order_.begin(), order_, entry->place);
    return result(*entry);
  }
  auto entry = std::make_shared<Entry>();
  entry->key = key;
  entries_.emplace(std::move(key), entry);
  ++stats_.misses;
  changed_.wait(lock, [&] { return running_ < options_.at_once; });
  ++running_;
  lock.unlock();
  Result made = make(spec);
  const size_t bytes = made.ok() ? made.value()->bytes() : size_t{1024};
  lock.lock();
  --running_;
  entry->ready = true;
  entry->bytes = bytes + 2 * entry->key.size();
  if (made.ok()) {
    entry->grammar = made.value();
  } else {
    entry->error = made.error();
  }
  if (made.ok() || lasting(made.error())) {
    keep(entry);
  } else {
    entries_.erase(entry->key);
  }
  changed_.notify_all();
  return made;
}

std::shared_ptr<const CompiledGrammar> GrammarCompiler::find(const GrammarSpec& spec) {
  if (spec.text.size() > options_.limits.text_bytes) return nullptr;
  const std::string key = key_of(spec);
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end() || !found->second->ready || !found->second->grammar) return nullptr;
  Entry& entry = *found->second;
  ++stats_.hits;
  if (entry.listed) order_.splice(order_.begin(), order_, entry.place);
  return entry.grammar;
}

void GrammarCompiler::keep(const std::shared_ptr<Entry>& entry) {
  order_.push_front(entry.get());
  entry->place = order_.begin();
  entry->listed = true;
  stats_.bytes += entry->bytes;
  while (!order_.empty() && (stats_.bytes > options_.max_bytes || order_.size() > options_.max_entries)) {
    drop(*order_.back());
  }
}

void GrammarCompiler::drop(Entry& entry) {
  stats_.bytes -= entry.bytes;
  order_.erase(entry.place);
  entry.listed = false;
  entries_.erase(entries_.find(entry.key));  // the entry may end here
}

GrammarCompilerStats GrammarCompiler::stats() const {
  const std::lock_guard lock(mutex_);
  GrammarCompilerStats out = stats_;
  out.entries = order_.size();
  return out;
}

}  // namespace tern::content
