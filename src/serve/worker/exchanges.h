// A request and its answer on a connection: who may ask what, and where the answer comes from.
#pragma once

#include <string>
#include <string_view>

#include "serve/report/metrics.h"
#include "serve/worker/connections.h"
#include "serve/worker/messages.h"
#include "serve/worker/shared.h"

namespace tern::serve {

class Exchanges {
 public:
  // `worker`: the number of the one whose thread this is.
  Exchanges(Shared& shared, int worker, MetricsShard& metrics, Connections& connections)
      : shared_(shared), worker_(worker), metrics_(metrics), connections_(connections) {}

  // The connection, while its request that is meant waits for an answer; else null.
  Connection* find(const ReplyTo& to);
  bool on_head(Connection& c);  // false: answered without its body
  void on_request(Connection& c);
  void respond(Connection& c, http::Response response);
  void begin_stream(Connection& c);
  // The answer is in `out`: counts it and makes the connection ready for its next request.
  void finish(Connection& c, int status);
  void take(Reply&& m);
  void bad_handshake(const Connection& c);

 private:
  bool check_key(Connection& c, bool open);  // false: the request has not the key it needs
  void submit_job(Connection& c);
  std::string request_id_line(std::string_view given);  // "" given: one is made

  Shared& shared_;
  const int worker_;
  MetricsShard& metrics_;
  Connections& connections_;
};

}  // namespace tern::serve
