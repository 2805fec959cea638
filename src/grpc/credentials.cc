#include "grpc/credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <new>
#include <string>

namespace tern::transport {
namespace {

using serve::kserve::Certificates;
using serve::kserve::ClientCertificates;
using serve::kserve::Host;

grpc_ssl_client_certificate_request_type request_type(ClientCertificates clients) {
  switch (clients) {
    case ClientCertificates::kNone:
      return GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
    case ClientCertificates::kOptional:
      return GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;
    case ClientCertificates::kRequired:
      break;
  }
  return GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
}

// Before each handshake, one at a time. gRPC goes on with those of before where there are no others.
grpc_ssl_certificate_config_reload_status fetch(void* host, grpc_ssl_server_certificate_config** out) {
  try {
    Certificates now;
    if (!static_cast<Host*>(host)->new_certificates(now)) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair{now.key.c_str(), now.chain.c_str()};
    // gRPC wants authorities in any case; where no client is asked for a certificate nobody looks at them.
    const std::string& authority = now.client_ca.empty() ? now.chain : now.client_ca;
    *out = grpc_ssl_server_certificate_config_create(authority.c_str(), &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  } catch (const std::bad_alloc&) {
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
  }
}

// gRPC's own class for C++ takes certificates once; its C interface asks for them.
class Credentials final : public ::grpc::ServerCredentials {
 public:
  Credentials(Host& host, ClientCertificates clients) : host_(host), clients_(clients) {}
  void SetAuthMetadataProcessor(const std::shared_ptr<::grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    grpc_ssl_server_credentials_options* const options =
        grpc_ssl_server_credentials_create_options_using_config_fetcher(request_type(clients_), fetch, &host_);
    if (options == nullptr) return 0;
    // Takes the options.
    grpc_server_credentials* const credentials = grpc_ssl_server_credentials_create_with_options(options);
    if (credentials == nullptr) return 0;
    const int port = grpc_server_add_http2_port(server, address.c_str(), credentials);
    grpc_server_credentials_release(credentials);  // the port holds them
    return port;
  }

  Host& host_;
  const ClientCertificates clients_;
};

}  // namespace

std::shared_ptr<::grpc::ServerCredentials> tls_credentials(Host& host, ClientCertificates clients) {
  return std::make_shared<Credentials>(host, clients);
}

}  // namespace tern::transport
