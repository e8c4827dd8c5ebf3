// SPDX-License-Identifier: Apache-2.0
#include "config/load.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "base/yaml.h"
#include "core/algorithms.h"
#include "net/address.h"
#include "net/listen_address.h"
#include "net/trusted_headers.h"
#include "redis/uri.h"
#include "telemetry/metrics.h"

namespace sluice::config {
namespace {

constexpr std::size_t kListMax = 10'000;

using Kind = YamlNode::Kind;

// Walks the file and collects its problems.
class Reader {
 public:
  Reader(std::string_view file, File& out, Problems& problems)
      : file_(file), out_(out), problems_(problems) {}

  void Read(const YamlNode& root) {
    ForEach(root, "settings such as \"http:\" or \"store:\"",
            [&](const std::string& name, const YamlNode& key, const YamlNode& value) {
              if (name == "limits") {
                ReadLimits(value);
              } else if (name == "defaults") {
                ReadDefaults(value);
              } else if (name == "ruleSets") {
                out_.has_rule_sets = true;
              } else if (IsSection(name)) {
                ReadSection(name, value);
              } else {
                ReadSetting(name, key, value);
              }
            });
  }

 private:
  void Complain(const YamlNode& node, std::string message) {
    problems_.push_back({std::string(file_), node.line, node.column, std::move(message)});
  }

  // Visits the entries of a mapping. An empty node is a mapping without entries. Reports keys that
  // are not names, or are given twice.
  template <typename Visit>
  void ForEach(const YamlNode& node, std::string_view expected, Visit visit) {
    if (node.kind == Kind::kNull) return;
    if (node.kind != Kind::kMapping) return Complain(node, text::Cat("expected ", expected));
    std::set<std::string_view> seen;
    for (std::size_t i = 0; i + 1 < node.items.size(); i += 2) {
      const YamlNode& key = *node.items[i];
      if (key.kind != Kind::kScalar) {
        Complain(key, "expected a name");
      } else if (!seen.insert(key.text).second) {
        // In the words of the reader of rules, which finds the same keys, so that it is reported
        // once.
        Complain(key,
                 text::Cat("key ", text::Quote(key.text), " is given twice; expected it once"));
      } else {
        visit(key.text, key, *node.items[i + 1]);
      }
    }
  }

  static bool IsSection(std::string_view name) {
    return std::ranges::any_of(AllSettings(), [&](const Setting& setting) {
      return setting.path.size() > name.size() && setting.path.starts_with(name) &&
             setting.path[name.size()] == '.';
    });
  }

  // The names that are valid in place of `section`; "" is the top level.
  static std::string Known(std::string_view section) {
    std::set<std::string> names;
    for (const Setting& setting : AllSettings()) {
      const auto dot = setting.path.find('.');
      if (section.empty()) {
        names.emplace(setting.path.substr(0, std::min(dot, setting.path.size())));
      } else if (dot == section.size() && setting.path.starts_with(section)) {
        names.emplace(setting.path.substr(dot + 1));
      }
    }
    if (section.empty()) names.insert({"defaults", "limits", "ruleSets"});
    std::string joined;
    for (const std::string& name : names) joined += (joined.empty() ? "" : ", ") + name;
    return joined;
  }

  void ReadSection(const std::string& section, const YamlNode& node) {
    ForEach(node, text::Cat("settings such as ", Known(section)),
            [&](const std::string& name, const YamlNode& key, const YamlNode& value) {
              ReadSetting(text::Cat(section, ".", name), key, value);
            });
  }

  void ReadSetting(const std::string& path, const YamlNode& key, const YamlNode& node) {
    const Setting* setting = FindSetting(path);
    if (!setting) {
      const auto dot = path.find('.');
      const std::string section = dot == std::string::npos ? "" : path.substr(0, dot);
      return Complain(key, text::Cat("there is no setting ", text::Quote(path),
                                     "; expected one of ", Known(section)));
    }
    std::string value = node.text;
    if (node.kind == Kind::kMapping || (node.kind == Kind::kSequence && !setting->list)) {
      return Complain(node, text::Cat(path, ": expected one value: ", setting->value));
    }
    if (node.kind == Kind::kSequence) {
      if (node.items.size() > kListMax) {
        return Complain(node, text::Cat(path, ": expected at most ", kListMax, " texts"));
      }
      for (const YamlNode* item : node.items) {
        if (item->kind != Kind::kScalar) {
          return Complain(*item, text::Cat(path, ": expected a list of texts"));
        }
        value += (value.empty() ? "" : ",") + item->text;
      }
    }
    out_.origins.insert_or_assign(path, Origin{std::string(file_), node.line, node.column});
    if (const auto done = setting->set(out_.settings, value); !done) {
      // A secret's value stays secret, even if it is wrong.
      Complain(node, setting->secret == Secret::kNo ? text::Cat(path, ": ", done.error().message)
                                                    : text::Cat(path, ": not valid"));
    }
  }

  // A limit in either form: the text, or its fields as a mapping.
  static Expected<Limit> ReadLimit(const YamlNode& node, std::string_view algorithm = {}) {
    const auto invalid = [](std::string message) {
      return std::unexpected(Error{ErrorCode::kInvalidLimit, std::move(message)});
    };
    std::string spec;
    if (!algorithm.empty()) spec = text::Cat("algorithm=", algorithm);
    const auto append = [&](std::string_view part) {
      if (!spec.empty()) spec += ',';
      spec += part;
    };
    if (node.kind == Kind::kScalar) {
      append(node.text);
      return Limit::Parse(spec);
    }
    if (node.kind != Kind::kMapping) {
      return invalid("expected a limit such as \"limit=100,window=60s\", or its fields");
    }
    for (std::size_t i = 0; i + 1 < node.items.size(); i += 2) {
      const YamlNode& name = *node.items[i];
      const YamlNode& value = *node.items[i + 1];
      if (name.kind != Kind::kScalar || value.kind != Kind::kScalar ||
          value.text.find_first_of(",=") != std::string::npos) {
        return invalid("expected fields such as limit: 100 and window: 60s");
      }
      append(text::Cat(name.text, "=", value.text));
    }
    return Limit::Parse(spec);
  }

  void ReadLimits(const YamlNode& node) {
    ForEach(node, "names, each with a limit",
            [&](const std::string& name, const YamlNode& key, const YamlNode& value) {
              // The names of all other states contain a slash; a name with an = is a limit written
              // out.
              if (name.empty() || name.size() > kNameBytesMax || name.contains('/') ||
                  name.contains('=')) {
                return Complain(key, text::Cat("expected a name of 1 to ", kNameBytesMax,
                                               " bytes without / and ="));
              }
              if (auto limit = ReadLimit(value)) {
                out_.limits.insert_or_assign(name, *limit);
              } else {
                Complain(value, text::Cat("limits.", name, ": ", limit.error().message));
              }
            });
  }

  void ReadDefaults(const YamlNode& node) {
    ForEach(node, "algorithms, each with a limit",
            [&](const std::string& name, const YamlNode& key, const YamlNode& value) {
              const auto algorithm = ParseAlgorithm(name);
              if (!algorithm) {
                return Complain(key, text::Cat("defaults: ", algorithm.error().message));
              }
              if (auto limit = ReadLimit(value, ToString(*algorithm))) {
                out_.defaults.insert_or_assign(*algorithm, *limit);
              } else {
                Complain(value, text::Cat("defaults.", name, ": ", limit.error().message));
              }
            });
  }

  const std::string_view file_;
  File& out_;
  Problems& problems_;
};

// What a header can carry: others would strip blanks around it.
bool IsToken(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

template <typename Complain>
void ValidateAdmin(const Settings::Admin& admin, Complain complain) {
  if (!admin.token.empty() && !admin.token_file.empty()) {
    complain("admin.tokenFile", "expected it or admin.token, not both");
  }
  if (!admin.token.empty() && !IsToken(admin.token)) {
    complain("admin.token", "expected visible ASCII characters without blanks");
  }
  const auto address = net::ListenAddress::Parse(admin.listen);
  const bool has_token = !admin.token.empty() || !admin.token_file.empty();
  if (address && !address->IsLoopback() && !has_token) {
    complain("admin.listen", text::Cat(admin.listen,
                                       " is not a loopback address; expected admin.token or "
                                       "admin.tokenFile to be set"));
  }
}

std::string Reason() { return std::generic_category().message(errno); }

}  // namespace

std::map<Algorithm, Limit> DefaultLimits() {
  std::map<Algorithm, Limit> defaults;
  for (const core::AlgorithmRow& row : core::kAlgorithms) {
    const auto limit = Limit::Parse(text::Cat("algorithm=", row.name, ",", row.default_text));
    defaults.insert_or_assign(row.algorithm, *limit);
  }
  return defaults;
}

File Parse(std::string_view yaml, std::string_view file, Problems& problems) {
  File out;
  // It may hold rules, and an emptied file must not pass for one without any.
  if (yaml.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    problems.push_back({std::string(file), 1, 1,
                        "the file is empty; expected settings, or a comment if there are none"});
  } else if (const auto document = YamlDocument::Load(yaml, file, problems)) {
    Reader(file, out, problems).Read(document->root());
  }
  return out;
}

std::expected<File, Problems> Parse(std::string_view yaml, std::string_view file) {
  Problems problems;
  File out = Parse(yaml, file, problems);
  if (!problems.empty()) return std::unexpected(std::move(problems));
  return out;
}

Problems Override(File& file,
                  const std::function<std::optional<std::string>(const std::string&)>& environment,
                  const std::vector<std::pair<std::string, std::string>>& flags) {
  Problems problems;
  const auto apply = [&](const Setting& setting, std::string origin, std::string_view value) {
    file.origins.insert_or_assign(std::string(setting.path), Origin{.file = origin});
    if (const auto done = setting.set(file.settings, value); !done) {
      problems.push_back({std::move(origin), 0, 0,
                          setting.secret == Secret::kNo ? done.error().message : "not valid"});
    }
  };
  for (const Setting& setting : AllSettings()) {
    std::string name = setting.Environment();
    if (const auto value = environment(name)) apply(setting, std::move(name), *value);
  }
  for (const auto& [path, value] : flags) {
    const Setting& setting = *FindSetting(path);
    apply(setting, std::string(setting.flag), value);
  }
  return problems;
}

Problem ProblemWith(const File& file, std::string_view path, std::string_view message) {
  std::string text = text::Cat(path, ": ", message);
  const auto origin = file.origins.find(path);
  if (origin == file.origins.end()) return {"settings", 0, 0, std::move(text)};
  const auto& [name, line, column] = origin->second;
  return {name, line, column, std::move(text)};
}

Problems Validate(const File& file) {
  const Settings& settings = file.settings;
  Problems problems;
  const auto complain = [&](std::string_view path, std::string_view message) {
    problems.push_back(ProblemWith(file, path, message));
  };
  for (const char* path : {"http.listen", "admin.listen", "resp.listen", "grpc.listen"}) {
    const std::string address = FindSetting(path)->get(settings);
    if (address.empty()) continue;
    if (const auto parsed = net::ListenAddress::Parse(address); !parsed) {
      complain(path, parsed.error().message);
    }
  }
  if (settings.http.listen.empty() && settings.admin.listen.empty() &&
      settings.resp.listen.empty() && settings.grpc.listen.empty()) {
    complain("http.listen",
             "nothing would listen; expected an address for at least one of http, admin, resp and "
             "grpc");
  }
  for (const std::string section : {"http", "resp", "grpc"}) {
    const std::string certificate = section + ".tlsCertificate";
    const std::string key = section + ".tlsKey";
    const bool has_certificate = !FindSetting(certificate)->get(settings).empty();
    const bool has_key = !FindSetting(key)->get(settings).empty();
    if (has_certificate && !has_key) complain(certificate, text::Cat("expected ", key, ", too"));
    if (has_key && !has_certificate) complain(key, text::Cat("expected ", certificate, ", too"));
    const std::string client_ca = section + ".tlsClientCa";
    if (!has_certificate && !FindSetting(client_ca)->get(settings).empty()) {
      complain(client_ca, text::Cat("expected ", certificate, ", too"));
    }
  }
  // The buffer of a body grows by doubling, and several bodies must fit.
  if (settings.http.body_bytes_max > settings.buffered_bytes_max / 4) {
    complain("http.bodyBytesMax", "expected at most a quarter of bufferedBytesMax");
  }
  for (const std::string& cidr : settings.client.trusted_proxies) {
    if (const auto parsed = net::Cidr::Parse(cidr); !parsed) {
      complain("client.trustedProxies", parsed.error().message);
    }
  }
  if (const auto count = settings.client.trusted_proxies.size(); count > net::CidrSet::kCidrsMax) {
    complain("client.trustedProxies",
             text::Cat(count, " networks; expected at most ", net::CidrSet::kCidrsMax));
  }
  if (const auto headers = net::TrustedHeaders::Parse(settings.client.trusted_headers); !headers) {
    complain("client.trustedHeaders", headers.error().message);
  }
  if (const auto names = net::ParseAttributeHeaders(settings.client.attribute_headers); !names) {
    complain("client.attributeHeaders", names.error().message);
  }
  if (const auto labels = telemetry::ParseCommonLabels(settings.metrics.labels); !labels) {
    complain("metrics.labels", labels.error().message);
  }
  const auto check_uri = [&](std::string_view path, std::string_view uri) {
    auto endpoint = redis::Endpoint::Parse(uri);
    if (!endpoint) complain(path, endpoint.error().message);
    return endpoint;
  };
  if (settings.store != "memory") {
    const auto endpoint = check_uri("store", settings.store);
    if (endpoint && settings.guard.deadline > endpoint->command_timeout) {
      complain("guard.deadline",
               text::Cat("the store's URI gives up after ", endpoint->command_timeout.count(),
                         " ms; expected no more than that, or a longer ?timeout= in the URI"));
    }
    // What does not fit in there fails at once, and would pass undecided under FAIL_OPEN.
    if (endpoint && std::cmp_greater(settings.guard.in_flight_max, endpoint->waiting_max)) {
      complain("guard.inFlightMax",
               text::Cat("the store's URI lets ", endpoint->waiting_max,
                         " requests wait; expected no more than that, or a larger ?waiting= in "
                         "the URI"));
    }
  }
  if (settings.rules.redis == "store") {
    if (settings.store == "memory") {
      complain("rules.redis", "\"store\" needs a store in Redis; expected a URI");
    }
  } else if (!settings.rules.redis.empty()) {
    check_uri("rules.redis", settings.rules.redis);
  }
  if (settings.guard.open_min > settings.guard.open_max) {
    complain("guard.openMin", "expected at most guard.openMax");
  }
  ValidateAdmin(settings.admin, complain);
  return problems;
}

Expected<std::string> ReadFile(const std::string& path, FileKind kind, std::size_t max) {
  const auto fail = [&](ErrorCode code, std::string_view what) {
    return std::unexpected(Error{code, text::Cat(path, ": ", what)});
  };
  errno = 0;
  const bool regular = kind == FileKind::kRegular;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | (regular ? O_NONBLOCK : 0));
  if (fd < 0) return fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, Reason());
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(::fdopen(fd, "rb"), std::fclose);
  struct stat status{};
  if (regular && (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))) {
    return fail(ErrorCode::kInvalidInput, "expected a regular file");
  }
  std::string out;
  char buffer[64 * 1024];
  while (const std::size_t bytes = std::fread(buffer, 1, sizeof buffer, file.get())) {
    out.append(buffer, bytes);
    if (out.size() > max) {
      return fail(ErrorCode::kInvalidInput,
                  text::Cat("too long; expected at most ", max, " bytes"));
    }
  }
  if (std::ferror(file.get())) return fail(ErrorCode::kIo, Reason());
  return out;
}

Expected<net::Tokens> ReadTokens(const std::string& path) {
  const auto text = ReadFile(path, FileKind::kAny, net::Tokens::kFileBytesMax);
  if (!text) return std::unexpected(text.error());
  auto tokens = net::Tokens::Parse(*text);
  if (!tokens) tokens.error().message = text::Cat(path, ": ", tokens.error().message);
  return tokens;
}

}  // namespace sluice::config
