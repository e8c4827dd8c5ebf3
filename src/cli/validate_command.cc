// SPDX-License-Identifier: Apache-2.0
#include "cli/validate_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <set>
#include <utility>

#include "base/text.h"
#include "base/yaml.h"
#include "cli/exit_code.h"
#include "cli/settings_options.h"
#include "config/load.h"
#include "net/tls.h"
#include "reload/sources.h"

namespace sluice::cli {
namespace {

// Whether it is a file of envoyproxy/ratelimit. Text that is not YAML counts as not: any reader
// reports it.
bool IsRls(const reload::Text& text) {
  Problems reported_later;  // When everything is built.
  const auto document = YamlDocument::Load(text.content, text.file, reported_later);
  if (!document || document->root().kind != YamlNode::Kind::kMapping) return false;
  const auto& items = document->root().items;
  for (std::size_t i = 0; i < items.size(); i += 2) {
    if (items[i]->text == "domain") return true;
  }
  return false;
}

// Collects everything that the service would read, each file once, and its problems.
class Collector {
 public:
  void Add(const std::string& path) {
    auto read = reload::Read({.config = {}, .rules = path, .rls = {}}, config::FileKind::kAny);
    if (!read) {
      problems.push_back({.file = "sluice validate", .message = read.error().message});
      return;
    }
    for (reload::Text& text : read->rules) {
      auto& texts = IsRls(text) ? sources.rls : sources.config;
      Take(texts, std::move(text));
    }
  }

  // Adds the files that the added ones refer to.
  void Follow() {
    for (const reload::Text& text : sources.config) {
      Problems reported_later;  // When everything is built.
      const config::File file = config::Parse(text.content, text.file, reported_later);
      std::ranges::move(config::Validate(file), std::back_inserter(problems));
      const config::Settings& settings = file.settings;
      FollowRules(file, "rules.path", {.config = {}, .rules = settings.rules.path, .rls = {}});
      FollowRules(file, "rules.rlsPath",
                  {.config = {}, .rules = {}, .rls = settings.rules.rls_path});
      sources.rls_merge_domains = sources.rls_merge_domains || settings.rules.rls_merge_domains;
      CheckDoor(file, "http", settings.http);
      CheckDoor(file, "resp", settings.resp);
      CheckDoor(file, "grpc", settings.grpc);
      CheckTokens(file, "admin", settings.admin.token_file);
    }
  }

  reload::Sources sources;
  Problems problems;

 private:
  void Take(std::vector<reload::Text>& texts, reload::Text text) {
    std::error_code error;
    auto path = std::filesystem::canonical(text.file, error);
    if (error) path = text.file;  // A pipe has no other name.
    if (!seen_.insert(std::move(path)).second) return;
    texts.push_back(std::move(text));
  }

  void FollowRules(const config::File& file, std::string_view setting,
                   const reload::Places& places) {
    auto read = reload::Read(places);
    if (!read) {
      problems.push_back(config::ProblemWith(file, setting, read.error().message));
      return;
    }
    for (reload::Text& text : read->rules) Take(sources.rules, std::move(text));
    for (reload::Text& text : read->rls) Take(sources.rls, std::move(text));
  }

  template <typename Door>
  void CheckDoor(const config::File& file, std::string_view section, const Door& door) {
    CheckTokens(file, section, door.token_file);
    if (door.tls_certificate.empty() || door.tls_key.empty()) return;
    const net::TlsFiles own{.cert = door.tls_certificate, .key = door.tls_key};
    net::TlsFiles with_clients = own;
    with_clients.client_ca = door.tls_client_ca;
    const auto complain = [&](std::string_view setting, const Error& error) {
      problems.push_back(config::ProblemWith(file, text::Cat(section, setting), error.message));
    };
    if (const auto made = net::TlsContext::Make(own); !made) {
      complain(".tlsCertificate", made.error());
    } else if (const auto asks = net::TlsContext::Make(with_clients); !asks) {
      complain(".tlsClientCa", asks.error());
    }
  }

  void CheckTokens(const config::File& file, std::string_view section, const std::string& path) {
    if (path.empty()) return;
    const auto tokens = config::ReadTokens(path);
    if (tokens) return;
    problems.push_back(
        config::ProblemWith(file, text::Cat(section, ".tokenFile"), tokens.error().message));
  }

  std::set<std::filesystem::path> seen_;
};

}  // namespace

ValidateCommand::ValidateCommand(CLI::App& app)
    : app_(app.add_subcommand("validate", "Checks configuration and rule files")) {
  app_->footer(
      "Reports every problem as file:line:column: what is wrong. A file with a top-level\n"
      "`domain:` is read as one of envoyproxy/ratelimit, any other as a configuration file, with\n"
      "or without `ruleSets:`. All files of a folder are checked together, along with the rules,\n"
      "certificates and tokens that they refer to. The command connects to nothing.\n"
      "\n"
      "It warns of what is valid but probably not intended: a rule without bands, an override\n"
      "that matches nobody, a method that nobody sends, an unknown variable SLUICE_....\n"
      "\n"
      "Exit status: 0 if all are valid, with or without warnings; 2 otherwise.\n");
  app_->add_option("FILE", paths_, "File or folder to check")->required()->type_name("");
  app_->add_flag("--rls-merge-domains", rls_merge_domains_,
                 "Allow one domain to be spread over several files, like rules.rlsMergeDomains");
}

int ValidateCommand::Run() const {
  Collector all;
  all.sources.rls_merge_domains = rls_merge_domains_;
  for (const std::string& path : paths_) all.Add(path);
  all.Follow();
  auto built = reload::Build(all.sources, 1);
  if (!built) std::ranges::move(built.error(), std::back_inserter(all.problems));
  if (!all.problems.empty()) {
    Print(all.problems);
    return kExitError;
  }
  const service::Catalog& catalog = *built->catalog;
  PrintWarnings(UnknownVariables());
  for (const auto& rule_set : catalog.rules->rule_sets()) PrintWarnings(rule_set->spec().warnings);
  std::printf("valid: %zu rule sets, %zu limits, %zu domains\n", catalog.rules->rule_sets().size(),
              catalog.limits.size(), catalog.domains->domains().size());
  return kExitOk;
}

}  // namespace sluice::cli
