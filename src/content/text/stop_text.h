// Stop strings over streamed text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tern::content {

// A value per stream. Text goes in as it arrives; out comes what is certain not to belong to a stop string. The
// earliest match wins (of several at one end, the longest); after it nothing more comes out. A stop string is found
// wherever the borders of the pieces lie. Cost: constant per byte (one automaton over all strings).
class StopMatcher {
 public:
  // Empty strings are ignored. With include_stop the matched string stays at the end of the text.
  explicit StopMatcher(std::vector<std::string> stops, bool include_stop = false);

  struct Result {
    std::string text;      // may now be sent
    bool stopped = false;  // a stop string was met; `text` ends the stream
    int stop_index = -1;   // which one, in the order given
  };
  Result push(std::string_view text);
  // End of the stream without a match: what was held back.
  std::string finish();

  bool active() const { return !stops_.empty(); }
  bool stopped() const { return stopped_; }
  size_t held() const { return held_.size(); }

 private:
  struct Node {
    int next[256];   // complete transition table (failure links resolved)
    int depth = 0;   // length of the stop-string prefix this node stands for
    int match = -1;  // longest stop string that ends here
  };
  void build();

  std::vector<std::string> stops_;
  bool include_stop_;
  std::vector<Node> nodes_;
  int state_ = 0;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace tern::content
