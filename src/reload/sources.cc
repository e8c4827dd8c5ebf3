// SPDX-License-Identifier: Apache-2.0
#include "reload/sources.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "rules/parse.h"

namespace sluice::reload {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFilesMax = 1024;

bool HasRuleExtension(const fs::path& path) {
  static constexpr std::array<std::string_view, 3> kExtensions = {".yaml", ".yml", ".json"};
  return std::ranges::find(kExtensions, path.extension().string()) != kExtensions.end();
}

// Hidden names are skipped: Kubernetes keeps its versions in them, and editors their drafts.
Expected<std::vector<std::string>> FilesOf(const std::string& place) {
  std::error_code error;
  const fs::file_status status = fs::status(place, error);
  if (!fs::exists(status)) {
    return std::unexpected(
        Error{ErrorCode::kNotFound, text::Cat(place, ": there is no such file or folder")});
  }
  if (!fs::is_directory(status)) return std::vector{place};
  std::vector<std::string> files;
  for (fs::directory_iterator entry(place, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& path = entry->path();
    if (path.filename().string().starts_with('.') || !HasRuleExtension(path)) continue;
    files.push_back(path.string());
  }
  if (error) {
    return std::unexpected(Error{ErrorCode::kIo, text::Cat(place, ": ", error.message())});
  }
  if (files.size() > kFilesMax) {
    return std::unexpected(Error{ErrorCode::kInvalidInput,
                                 text::Cat(place, ": expected at most ", kFilesMax, " files")});
  }
  std::ranges::sort(files);
  return files;
}

Expected<std::vector<Text>> ReadPlace(const std::string& place, config::FileKind kind) {
  std::vector<Text> texts;
  if (place.empty()) return texts;
  const auto files = FilesOf(place);
  if (!files) return std::unexpected(files.error());
  for (const std::string& file : *files) {
    auto content = config::ReadFile(file, file == place ? kind : config::FileKind::kRegular);
    if (!content) return std::unexpected(content.error());
    texts.push_back({file, *std::move(content)});
  }
  return texts;
}

void Append(Problems& all, Problems some) { std::ranges::move(some, std::back_inserter(all)); }

// Adds those that do not conflict with rule sets of files, and their ids to `taken`; returns the
// others.
Rejections AppendManaged(const Documents& documents, rules::RuleSets& rule_sets,
                         std::set<std::string, std::less<>>& taken) {
  std::map<std::string_view, const rules::RuleSetSpec*> of_files;
  for (const auto& rule_set : rule_sets) of_files.emplace(rule_set->id(), &rule_set->spec());
  Rejections skipped;
  for (const auto& [id, document] : documents) {
    if (const auto file = of_files.find(id); file != of_files.end()) {
      skipped.emplace(id, text::Cat("a file defines it, which counts: ", file->second->file, ":",
                                    file->second->line));
      continue;
    }
    if (rule_sets.size() >= rules::kRuleSetsMax) {
      skipped.emplace(id, text::Cat("expected at most ", rules::kRuleSetsMax, " rule sets"));
      continue;
    }
    auto parsed = rules::ParseRuleSet(document, text::Cat("managed rule set ", id));
    if (!parsed) {
      skipped.emplace(id, parsed.error().front().ToString());
      continue;
    }
    rule_sets.push_back(*std::move(parsed));
    taken.insert(id);
  }
  return skipped;
}

}  // namespace

bool SameFiles(const Sources& a, const Sources& b) {
  return a.config == b.config && a.rules == b.rules && a.rls == b.rls;
}

Expected<Sources> Read(const Places& places, config::FileKind kind) {
  Sources sources;
  sources.rls_merge_domains = places.rls_merge_domains;
  for (const auto& [place, texts] :
       {std::pair(&places.config, &sources.config), std::pair(&places.rules, &sources.rules),
        std::pair(&places.rls, &sources.rls)}) {
    auto read = ReadPlace(*place, kind);
    if (!read) return std::unexpected(read.error());
    *texts = *std::move(read);
  }
  return sources;
}

std::expected<Built, Problems> Build(const Sources& sources, std::uint64_t generation) {
  Problems problems;
  auto catalog = std::make_shared<service::Catalog>();
  catalog->generation = generation;
  catalog->defaults = config::DefaultLimits();

  rules::RuleSets rule_sets;
  const auto take = [&](std::expected<rules::RuleSets, Problems> parsed) {
    if (parsed) {
      std::ranges::move(*parsed, std::back_inserter(rule_sets));
    } else {
      Append(problems, std::move(parsed.error()));
    }
  };
  for (const Text& text : sources.config) {
    if (auto file = config::Parse(text.content, text.file)) {
      catalog->limits = std::move(file->limits);
      catalog->defaults = std::move(file->defaults);
    } else {
      Append(problems, std::move(file.error()));
    }
    take(rules::ParseRuleSets(text.content, text.file, rules::OtherKeys::kIgnore));
  }
  for (const Text& text : sources.rules) {
    take(rules::ParseRuleSets(text.content, text.file, rules::OtherKeys::kForbid));
  }
  Rejections skipped = AppendManaged(sources.managed, rule_sets, catalog->managed);
  if (auto book = rules::RuleBook::Build(std::move(rule_sets), generation)) {
    catalog->rules = *std::move(book);
  } else {
    Append(problems, std::move(book.error()));
  }
  std::vector<rules::RlsConfig::File> rls;
  rls.reserve(sources.rls.size());
  for (const Text& text : sources.rls) rls.push_back({text.file, text.content});
  const auto merge = sources.rls_merge_domains ? rules::RlsMerge::kMerge : rules::RlsMerge::kForbid;
  if (auto domains = rules::RlsConfig::Parse(rls, merge)) {
    catalog->domains = *std::move(domains);
  } else {
    Append(problems, std::move(domains.error()));
  }
  if (!problems.empty()) {
    // Both readers of a configuration file report that it is not YAML.
    Problems once;
    for (Problem& problem : problems) {
      if (std::ranges::find(once, problem) == once.end()) once.push_back(std::move(problem));
    }
    return std::unexpected(std::move(once));
  }
  return Built{.catalog = std::move(catalog), .skipped = std::move(skipped)};
}

}  // namespace sluice::reload
