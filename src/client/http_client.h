// An HTTP/1.1 client for `tern chat` and `tern ocr`: http and https (libcurl), one request per call, streamed answers.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tern::client {

struct Url {
  std::string host;
  std::string port = "80";
  std::string path;  // without a slash at the end; "" for the root
  bool tls = false;  // https; the port is 443 then
};
// http[s]://host[:port][/path]; IPv6 hosts in brackets. Errors: another scheme, no host, a bad port.
Expected<Url> parse_url(std::string_view text);

// Cuts a server-sent event stream into the data of its events.
class EventParser {
 public:
  using Sink = std::function<void(std::string_view data)>;
  // Bytes may be cut anywhere. Errors: one line longer than a megabyte.
  Status feed(std::string_view bytes, const Sink& sink);

 private:
  std::string line_;
};

struct HttpCall {
  std::string method = "POST";
  std::string path;  // after the URL's own
  std::string body;
  std::string api_key;                    // "" sends none
  std::string ca_file;                    // certificates to trust, PEM; "": the system's
  std::vector<std::string> headers = {};  // more of them, "name: value"
  long seconds = 0;                       // for the whole call; 0: any time
  std::string unix_socket = {};           // connects there instead of to the URL's host; "": no
  bool check_certificate = true;
};
// The request as it goes over the wire.
std::string request_text(const Url& url, const HttpCall& call, bool keep_alive);

// Makes a call and hands every piece of the answer's body to `on_body` as it comes; returning false ends the call,
// which closes the connection (the server then stops the request). Gives the status code. `socket`, when not null,
// holds the connection's descriptor while the call runs, so that a signal handler may shut it down. The environment's
// proxies are not used; certificates are checked unless the call says not to.
Expected<int> http_call(const Url& url, const HttpCall& call, const std::function<bool(std::string_view)>& on_body,
                        std::atomic<int>* socket = nullptr);

}  // namespace tern::client
