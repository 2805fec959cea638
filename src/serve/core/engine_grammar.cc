#include "serve/core/engine_grammar.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tern::serve {
namespace {

using content::CompiledGrammar;
using content::Matcher;

void allow(std::span<uint32_t> bits, int32_t id) {
  const auto word = static_cast<size_t>(id) / 32;
  if (word < bits.size()) bits[word] |= 1u << (static_cast<uint32_t>(id) % 32);
}

class PlacedMatcher : public engine::TokenMatcher {
 public:
  PlacedMatcher(std::shared_ptr<const CompiledGrammar> grammar, Matcher matcher, const GrammarPlace& place)
      : grammar_(std::move(grammar)), matcher_(std::move(matcher)), place_(place) {}

  Status consume(std::span<const int32_t> ids) override {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (within()) {
        taken_.insert(taken_.end(), ids.begin() + static_cast<ptrdiff_t>(i), ids.end());
        return matcher_.consume(ids.subspan(i));
      }
      TERN_RETURN_IF_ERROR(outside(ids[i]));
    }
    return {};
  }

  Status fill(std::span<uint32_t> bits) override {
    if (free_) {
      std::ranges::fill(bits, ~0u);
      return {};
    }
    TERN_RETURN_IF_ERROR(fill_by_grammar(bits));
    if (may_open()) allow(bits, *place_.thoughts_begin);
    return {};
  }

  Status forced(size_t most, std::vector<int32_t>& ids) override {
    if (free_ || may_open()) return {};
    return matcher_.forced(most, ids);
  }

  Status roll_back(size_t count) override {
    count = std::min(count, taken_.size());
    std::vector<int32_t> rest(taken_.begin(), taken_.end() - static_cast<ptrdiff_t>(count));
    if (begin_ && rest.size() >= *begin_) {
      taken_ = std::move(rest);
      return matcher_.roll_back(count);
    }
    TERN_ASSIGN_OR_RETURN(matcher_, grammar_->start());
    taken_.clear();
    begin_.reset();
    free_ = place_.trigger.has_value();
    thinking_ = false;
    return consume(rest);
  }

 private:
  // A tokenizer may know more ids than the model has columns for.
  Status fill_by_grammar(std::span<uint32_t> bits) {
    const size_t words = (grammar_->ids() + 31) / 32;
    if (bits.size() >= words) return matcher_.fill(bits);
    wide_.resize(words);
    TERN_RETURN_IF_ERROR(matcher_.fill(wide_));
    std::copy_n(wide_.begin(), bits.size(), bits.begin());
    return {};
  }
  bool may_open() const { return taken_.empty() && place_.thoughts_begin; }
  // The grammar holds for the next id, whatever it is.
  bool within() {
    if (!begin_ && !free_ && !may_open()) begin_ = taken_.size();
    return begin_.has_value();
  }
  // An id before the grammar, or the first one of an answer that may open with thoughts.
  Status outside(int32_t id) {
    const bool first = taken_.empty();
    taken_.push_back(id);
    if (first && id == place_.thoughts_begin) {
      free_ = thinking_ = true;
      return {};
    }
    if (free_) {
      const std::optional<int32_t>& end = thinking_ ? place_.thoughts_end : place_.trigger;
      if (id != end) return {};
      free_ = std::exchange(thinking_, false) && place_.trigger.has_value();
      if (!free_) begin_ = taken_.size();
      return {};
    }
    begin_ = 0;
    return matcher_.consume({&id, 1});
  }

  const std::shared_ptr<const CompiledGrammar> grammar_;
  Matcher matcher_;
  std::vector<uint32_t> wide_;
  const GrammarPlace place_;
  bool free_ = place_.trigger.has_value();  // nothing is refused
  bool thinking_ = false;                   // then: within thoughts that the answer has opened
  std::vector<int32_t> taken_;
  std::optional<size_t> begin_;  // the ids from here on are the grammar's
};

class PlacedGrammar : public engine::Grammar {
 public:
  PlacedGrammar(std::shared_ptr<const CompiledGrammar> grammar, const GrammarPlace& place)
      : grammar_(std::move(grammar)), place_(place) {}
  Expected<std::unique_ptr<engine::TokenMatcher>> start() const override {
    TERN_ASSIGN_OR_RETURN(Matcher matcher, grammar_->start());
    return std::unique_ptr<engine::TokenMatcher>(new PlacedMatcher(grammar_, std::move(matcher), place_));
  }

 private:
  const std::shared_ptr<const CompiledGrammar> grammar_;
  const GrammarPlace place_;
};

}  // namespace

std::shared_ptr<const engine::Grammar> engine_grammar(std::shared_ptr<const content::CompiledGrammar> compiled,
                                                      const GrammarPlace& place) {
  return std::make_shared<PlacedGrammar>(std::move(compiled), place);
}

}  // namespace tern::serve
