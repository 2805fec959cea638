// TLS of the port: certificates that may change while it listens.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "serve/kserve/transport.h"

namespace tern::transport {

// TLS 1.2 and 1.3, with ALPN of h2. Every handshake begins with what the host shows then. The host must outlive the
// server that has them.
std::shared_ptr<::grpc::ServerCredentials> tls_credentials(serve::kserve::Host& host,
                                                           serve::kserve::ClientCertificates clients);

}  // namespace tern::transport
