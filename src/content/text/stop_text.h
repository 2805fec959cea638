// Stop strings over streamed text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tern::content {

// A value per stream. Text goes in as it arrives; out comes what is certain not to belong to a stop string. The match
// that ends first wins (of several with the same end, the longest); after it nothing more comes out. A stop string is
// found wherever the borders of the pieces lie. Cost per byte: constant for every stop string (Knuth-Morris-Pratt).
class StopMatcher {
 public:
  // Empty strings never match. With include_stop the matched string stays at the end of the text.
  explicit StopMatcher(std::vector<std::string> stops, bool include_stop = false);

  struct Result {
    std::string text;      // may now be sent
    bool stopped = false;  // a stop string was met; `text` ends the stream
    int stop_index = -1;   // which one, in the order given
  };
  Result push(std::string_view text);
  // End of the stream without a match: what was held back.
  std::string finish();

  bool active() const { return !patterns_.empty(); }
  bool stopped() const { return stopped_; }
  size_t held() const { return held_.size(); }

 private:
  struct Pattern {
    std::string text;
    std::vector<uint32_t> border;  // border[n]: longest proper prefix of the first n bytes that is also their suffix
    size_t matched = 0;            // bytes of `text` that the stream ends with now
    int index = 0;
  };

  std::vector<Pattern> patterns_;
  bool include_stop_;
  std::string held_;  // the end of the stream that may begin a stop string
  bool stopped_ = false;
};

}  // namespace tern::content
