// SPDX-License-Identifier: Apache-2.0
#include "simulate/lua_redis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <lua.hpp>

#include "redis/resp.h"
#include "store/redis/script.h"

namespace sluice::simulate {
namespace {

constexpr const char* kWrongType =
    "WRONGTYPE Operation against a key holding the wrong kind of value";
constexpr const char* kFull = "OOM command not allowed when used memory > 'maxmemory'.";
constexpr char kSelf = 0;  // Its address names the server in Lua's registry.

std::string Number(double value) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.17g", value);
  return text.data();
}

// "5", "(5", "-inf", "+inf": bounds of ZRANGEBYSCORE and others.
struct Bound {
  double score;
  bool open;
};
Bound BoundOf(const std::string& text) {
  const bool open = text.starts_with("(");
  return {std::strtod(text.c_str() + (open ? 1 : 0), nullptr), open};
}
bool IsAbove(double score, Bound low) { return low.open ? score > low.score : score >= low.score; }
bool IsBelow(double score, Bound high) {
  return high.open ? score < high.score : score <= high.score;
}

// Ranks from `first` to `last`, with negative ones counted from the end, as a half-open range.
std::pair<std::size_t, std::size_t> Ranks(std::int64_t first, std::int64_t last, std::size_t size) {
  const auto count = static_cast<std::int64_t>(size);
  if (first < 0) first = std::max<std::int64_t>(0, first + count);
  if (last < 0) last += count;
  last = std::min(last, count - 1);
  if (first > last) return {0, 0};
  return {static_cast<std::size_t>(first), static_cast<std::size_t>(last) + 1};
}

std::int64_t Integer(const std::string& text) { return std::strtoll(text.c_str(), nullptr, 10); }

// The parts of Redis' struct library that the script uses: 'c' and 'I', each with its size, and
// 'B', in formats of little endian.
class Format {
 public:
  explicit Format(lua_State* lua) : lua_(lua), text_(luaL_checkstring(lua, 1)) {
    luaL_argcheck(lua, *text_++ == '<', 1, "expected little endian");
  }

  char kind() const { return kind_; }
  std::size_t size() const { return size_; }
  bool Next() {
    if (*text_ == 0) return false;
    kind_ = *text_++;
    char* end = nullptr;
    size_ = kind_ == 'B' ? 1 : std::strtoul(text_, &end, 10);
    if (end) text_ = end;
    luaL_argcheck(lua_, (kind_ == 'B' || kind_ == 'I' || kind_ == 'c') && size_ > 0, 1, "unknown");
    return true;
  }

 private:
  lua_State* lua_;
  const char* text_;
  char kind_ = 0;
  std::size_t size_ = 0;
};

int Pack(lua_State* lua) {
  Format format(lua);
  luaL_Buffer out;
  luaL_buffinit(lua, &out);
  for (int argument = 2; format.Next(); ++argument) {
    if (format.kind() == 'c') {
      std::size_t size = 0;
      const char* const text = luaL_checklstring(lua, argument, &size);
      luaL_argcheck(lua, size >= format.size(), argument, "string too short");
      luaL_addlstring(&out, text, format.size());
      continue;
    }
    auto value = static_cast<std::uint64_t>(luaL_checknumber(lua, argument));
    for (std::size_t i = 0; i < format.size(); ++i, value >>= 8) {
      luaL_addchar(&out, static_cast<char>(value));
    }
  }
  luaL_pushresult(&out);
  return 1;
}

int Unpack(lua_State* lua) {
  Format format(lua);
  std::size_t size = 0;
  const char* const text = luaL_checklstring(lua, 2, &size);
  auto at = static_cast<std::size_t>(luaL_optnumber(lua, 3, 1)) - 1;
  int count = 0;
  for (; format.Next(); ++count, at += format.size()) {
    luaL_argcheck(lua, at + format.size() <= size, 2, "data string too short");
    luaL_checkstack(lua, 1, "too many results");
    if (format.kind() == 'c') {
      lua_pushlstring(lua, text + at, format.size());
      continue;
    }
    std::uint64_t value = 0;
    for (std::size_t i = format.size(); i > 0; --i) {
      value = value << 8 | static_cast<unsigned char>(text[at + i - 1]);
    }
    lua_pushnumber(lua, static_cast<double>(value));
  }
  lua_pushnumber(lua, static_cast<double>(at + 1));
  return count + 1;
}

}  // namespace

LuaRedis::LuaRedis(Edit edit) : edit_(std::move(edit)), lua_(luaL_newstate()) {
  luaL_openlibs(lua_);
  lua_pushlightuserdata(lua_, const_cast<char*>(&kSelf));
  lua_pushlightuserdata(lua_, this);
  lua_settable(lua_, LUA_REGISTRYINDEX);
  lua_newtable(lua_);
  lua_pushcfunction(lua_, &LuaRedis::LuaCall);
  lua_setfield(lua_, -2, "call");
  lua_pushcfunction(lua_, &LuaRedis::LuaProtectedCall);
  lua_setfield(lua_, -2, "pcall");
  lua_pushcfunction(lua_, &LuaRedis::LuaRegister);
  lua_setfield(lua_, -2, "register_function");
  lua_setglobal(lua_, "redis");
  lua_newtable(lua_);
  lua_pushcfunction(lua_, &Pack);
  lua_setfield(lua_, -2, "pack");
  lua_pushcfunction(lua_, &Unpack);
  lua_setfield(lua_, -2, "unpack");
  lua_setglobal(lua_, "struct");
}

LuaRedis::~LuaRedis() { lua_close(lua_); }

std::string LuaRedis::Execute(std::span<const std::string> words, std::int64_t now_us) {
  now_us_ = now_us;
  if (words[0] == "EVALSHA" || words[0] == "FCALL") return Run(words);
  std::string reply;
  if (words[0] == "SCRIPT" && words[1] == "LOAD") {
    redis::AppendBulkString(reply, LoadScript(words[2]));
  } else if (words[0] == "FUNCTION" && words[1] == "LOAD") {
    return LoadLibrary(words[2]);
  } else {
    redis::AppendError(reply, "ERR unknown command '" + words[0] + "'");
  }
  return reply;
}

// Leaves the function on the stack.
void LuaRedis::Compile(std::string_view source) {
  const std::string text = edit_ ? edit_(source) : std::string(source);
  if (luaL_loadbuffer(lua_, text.data(), text.size(), "@user_script") != 0) {
    std::fprintf(stderr, "simulate: %s\n", lua_tostring(lua_, -1));
    std::abort();
  }
}

std::string LuaRedis::LoadScript(std::string_view source) {
  const redis::Program& program = redis::ProgramAs(redis::ProgramForm::kScript);
  if (source != program.source) return "";  // There is only one.
  if (scripts_.contains(program.name)) return program.name;
  Compile(source);
  scripts_[program.name] = luaL_ref(lua_, LUA_REGISTRYINDEX);
  return program.name;
}

std::string LuaRedis::LoadLibrary(std::string_view source) {
  const redis::Program& program = redis::ProgramAs(redis::ProgramForm::kFunction);
  std::string reply;
  if (full_) {
    redis::AppendError(reply, kFull);
  } else if (scripts_.contains(program.name)) {
    redis::AppendError(reply, "ERR Library '" + program.name + "' already exists");
  } else {
    Compile(source.substr(source.find('\n') + 1));
    lua_call(lua_, 0, 0);
    redis::AppendBulkString(reply, program.name);
  }
  return reply;
}

int LuaRedis::LuaRegister(lua_State* lua) {
  lua_pushlightuserdata(lua, const_cast<char*>(&kSelf));
  lua_gettable(lua, LUA_REGISTRYINDEX);
  auto* const self = static_cast<LuaRedis*>(lua_touserdata(lua, -1));
  lua_pop(lua, 1);
  self->scripts_[lua_tostring(lua, 1)] = luaL_ref(lua, LUA_REGISTRYINDEX);
  return 0;
}

void LuaRedis::FlushScripts() {
  for (const auto& [_, reference] : scripts_) luaL_unref(lua_, LUA_REGISTRYINDEX, reference);
  scripts_.clear();
}

void LuaRedis::PushTable(std::span<const std::string> words) {
  lua_createtable(lua_, static_cast<int>(words.size()), 0);
  for (std::size_t i = 0; i < words.size(); ++i) {
    lua_pushlstring(lua_, words[i].data(), words[i].size());
    lua_rawseti(lua_, -2, static_cast<int>(i) + 1);
  }
}

// EVALSHA digest keys key… argument…, or FCALL function keys key… argument…
std::string LuaRedis::Run(std::span<const std::string> words) {
  const bool is_function = words[0] == "FCALL";
  std::string reply;
  const auto script = scripts_.find(words[1]);
  if (script == scripts_.end()) {
    redis::AppendError(reply, is_function ? "ERR Function not found"
                                          : "NOSCRIPT No matching script. Please use EVAL.");
    return reply;
  }
  if (is_function && full_) {
    redis::AppendError(reply, kFull);
    return reply;
  }
  refuses_ = full_;
  has_written_ = false;
  lua_rawgeti(lua_, LUA_REGISTRYINDEX, script->second);
  const auto keys = static_cast<std::size_t>(Integer(words[2]));
  PushTable(words.subspan(3, keys));
  if (!is_function) lua_setglobal(lua_, "KEYS");
  PushTable(words.subspan(3 + keys));
  if (!is_function) lua_setglobal(lua_, "ARGV");
  if (lua_pcall(lua_, is_function ? 2 : 0, 1, 0) != 0) {
    const char* const text = lua_tostring(lua_, -1);
    redis::AppendError(reply, std::string("ERR ") + (text ? text : "error object"));
  } else {
    reply = EncodeTop();
  }
  lua_settop(lua_, 0);
  return reply;
}

std::string LuaRedis::EncodeTop() const {
  std::string out;
  Encode(lua_gettop(lua_), out);
  return out;
}

void LuaRedis::Encode(int index, std::string& out) const {
  switch (lua_type(lua_, index)) {
    case LUA_TNUMBER:
      return redis::AppendInteger(out, static_cast<std::int64_t>(lua_tonumber(lua_, index)));
    case LUA_TSTRING: {
      std::size_t size = 0;
      const char* const text = lua_tolstring(lua_, index, &size);
      return redis::AppendBulkString(out, {text, size});
    }
    case LUA_TBOOLEAN:
      if (lua_toboolean(lua_, index)) return redis::AppendInteger(out, 1);
      out += "$-1\r\n";
      return;
    case LUA_TTABLE:
      break;
    default:
      out += "$-1\r\n";
      return;
  }
  for (const char* const field : {"err", "ok"}) {
    lua_getfield(lua_, index, field);
    const bool is_text = lua_type(lua_, -1) == LUA_TSTRING;
    if (is_text) {
      const std::string text = lua_tostring(lua_, -1);
      field[0] == 'e' ? redis::AppendError(out, text) : redis::AppendSimpleString(out, text);
    }
    lua_pop(lua_, 1);
    if (is_text) return;
  }
  std::string elements;
  std::size_t count = 0;
  for (int i = 1;; ++i) {
    lua_rawgeti(lua_, index, i);
    const bool end = lua_isnil(lua_, -1);
    if (!end) Encode(lua_gettop(lua_), elements);
    lua_pop(lua_, 1);
    if (end) break;
    ++count;
  }
  redis::AppendArrayHeader(out, count);
  out += elements;
}

int LuaRedis::LuaCall(lua_State* lua) { return CallFromLua(lua, true); }
int LuaRedis::LuaProtectedCall(lua_State* lua) { return CallFromLua(lua, false); }

int LuaRedis::CallFromLua(lua_State* lua, bool raise) {
  lua_pushlightuserdata(lua, const_cast<char*>(&kSelf));
  lua_gettable(lua, LUA_REGISTRYINDEX);
  auto* const self = static_cast<LuaRedis*>(lua_touserdata(lua, -1));
  lua_pop(lua, 1);
  bool failed = false;
  {
    Words words;
    for (int i = 1; i <= lua_gettop(lua); ++i) {
      if (lua_type(lua, i) == LUA_TNUMBER) {
        words.push_back(Number(lua_tonumber(lua, i)));
        continue;
      }
      std::size_t size = 0;
      const char* const text = lua_tolstring(lua, i, &size);
      words.emplace_back(text ? text : "", size);
    }
    const Reply reply = self->Command(words);
    failed = std::holds_alternative<Failure>(reply);
    self->PushReply(reply);
  }
  // Lua leaves the function by a jump: nothing that needs destruction is left here.
  return raise && failed ? lua_error(lua) : 1;
}

void LuaRedis::PushReply(const Reply& reply) {
  const auto push_text = [&](const std::string& text) {
    lua_pushlstring(lua_, text.data(), text.size());
  };
  if (const auto* number = std::get_if<std::int64_t>(&reply)) {
    lua_pushnumber(lua_, static_cast<double>(*number));
  } else if (const auto* text = std::get_if<std::string>(&reply)) {
    push_text(*text);
  } else if (const auto* array = std::get_if<std::vector<std::optional<std::string>>>(&reply)) {
    lua_createtable(lua_, static_cast<int>(array->size()), 0);
    for (std::size_t i = 0; i < array->size(); ++i) {
      (*array)[i] ? push_text(*(*array)[i]) : lua_pushboolean(lua_, 0);
      lua_rawseti(lua_, -2, static_cast<int>(i) + 1);
    }
  } else if (std::holds_alternative<Nil>(reply)) {
    lua_pushboolean(lua_, 0);
  } else {
    const auto* const status = std::get_if<Status>(&reply);
    lua_createtable(lua_, 0, 1);
    push_text(status ? status->text : std::get<Failure>(reply).text);
    lua_setfield(lua_, -2, status ? "ok" : "err");
  }
}

LuaRedis::Value* LuaRedis::Find(const std::string& key) {
  const auto found = keys_.find(key);
  if (found == keys_.end()) return nullptr;
  if (found->second.expires_ms && now_us_ / 1000 > *found->second.expires_ms) {
    keys_.erase(found);
    return nullptr;
  }
  return &found->second;
}

LuaRedis::SortedSet* LuaRedis::FindSet(const std::string& key, Reply& problem) {
  Value* const value = Find(key);
  if (!value) return nullptr;
  auto* const set = std::get_if<SortedSet>(&value->data);
  if (!set) problem = Failure{kWrongType};
  return set;
}

void LuaRedis::Remember(const std::string& key) {
  const Value* const value = Find(key);
  undo_.emplace_back(key, value ? std::optional(*value) : std::nullopt);
}

bool LuaRedis::Has(const std::string& key, std::int64_t now_us) {
  now_us_ = now_us;
  return Find(key) != nullptr;
}

void LuaRedis::RollBack(std::size_t position) {
  for (; undo_.size() > position; undo_.pop_back()) {
    auto& [key, value] = undo_.back();
    if (value) {
      keys_.insert_or_assign(key, *std::move(value));
    } else {
      keys_.erase(key);
    }
  }
}

std::vector<std::string> LuaRedis::Immortals() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : keys_) {
    if (!value.expires_ms) keys.push_back(key);
  }
  return keys;
}

std::vector<std::string> LuaRedis::Keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, _] : keys_) keys.push_back(key);
  return keys;
}

void LuaRedis::Move(const std::string& key, LuaRedis& to) {
  auto node = keys_.extract(key);
  if (!node.empty()) to.keys_.insert_or_assign(key, std::move(node.mapped()));
}

// Why a script may not write: memory was full when it began. Once it has written, Redis lets it go
// on.
std::optional<LuaRedis::Failure> LuaRedis::Refusal(const std::string& name) const {
  const bool needs_memory =
      name == "SET" || name == "PSETEX" || name == "SETRANGE" || name == "ZADD";
  if (refuses_ && needs_memory && !has_written_) return Failure{kFull};
  return std::nullopt;
}

LuaRedis::Reply LuaRedis::Command(const Words& words) {
  const std::string& name = words[0];
  if (name == "TIME") {
    return std::vector<std::optional<std::string>>{std::to_string(now_us_ / 1'000'000),
                                                   std::to_string(now_us_ % 1'000'000)};
  }
  if (name == "PUBLISH") {
    published_.push_back(words[2]);
    return std::int64_t{0};
  }
  if (name == "GET") {
    const Value* const value = Find(words[1]);
    if (!value) return Nil{};
    if (const auto* text = std::get_if<std::string>(&value->data)) return *text;
    return Failure{kWrongType};
  }
  if (name == "MGET") {
    std::vector<std::optional<std::string>> all;
    for (std::size_t i = 1; i < words.size(); ++i) {
      const Value* const value = Find(words[i]);
      const auto* const text = value ? std::get_if<std::string>(&value->data) : nullptr;
      all.push_back(text ? std::optional(*text) : std::nullopt);
    }
    return all;
  }
  if (name == "ZCARD" || name == "ZCOUNT" || name == "ZRANGE" || name == "ZRANGEBYSCORE" ||
      name == "ZREVRANGEBYSCORE" || name == "ZRANK") {
    return SortedSetRead(words);
  }
  if (auto refusal = Refusal(name)) return *std::move(refusal);
  has_written_ = true;  // Even if it changes nothing.
  return Write(words);
}

LuaRedis::Reply LuaRedis::SortedSetRead(const Words& words) {
  static const SortedSet kNone;
  Reply problem = std::int64_t{0};
  const SortedSet* found = FindSet(words[1], problem);
  if (std::holds_alternative<Failure>(problem)) return problem;
  const SortedSet& set = found ? *found : kNone;
  if (words[0] == "ZCARD") return static_cast<std::int64_t>(set.order.size());
  if (words[0] == "ZCOUNT") {
    return static_cast<std::int64_t>(std::ranges::count_if(set.order, [&](const auto& entry) {
      return IsAbove(entry.first, BoundOf(words[2])) && IsBelow(entry.first, BoundOf(words[3]));
    }));
  }
  if (words[0] == "ZRANK") {
    const auto member = set.scores.find(words[2]);
    if (member == set.scores.end()) return Nil{};
    const auto place = set.order.find({member->second, member->first});
    return static_cast<std::int64_t>(std::distance(set.order.begin(), place));
  }
  // All others always use WITHSCORES.
  std::vector<std::optional<std::string>> entries;
  const auto add = [&](const auto& entry) {
    entries.push_back(entry.second);
    entries.push_back(Number(entry.first));
  };
  if (words[0] == "ZRANGE") {
    const auto [first, last] = Ranks(Integer(words[2]), Integer(words[3]), set.order.size());
    auto entry = std::next(set.order.begin(), static_cast<std::ptrdiff_t>(first));
    for (std::size_t i = first; i < last; ++i) add(*entry++);
    return entries;
  }
  // ZRANGEBYSCORE key low high WITHSCORES LIMIT offset count, or ZREVRANGEBYSCORE key high low …
  const bool reversed = words[0] == "ZREVRANGEBYSCORE";
  const Bound low = BoundOf(words[reversed ? 3 : 2]);
  const Bound high = BoundOf(words[reversed ? 2 : 3]);
  auto skip = words.size() > 7 ? Integer(words[6]) : std::int64_t{0};
  auto room = words.size() > 7 ? Integer(words[7]) : std::int64_t{1} << 40;
  const auto add_if = [&](const auto& entry) {
    if (!IsAbove(entry.first, low) || !IsBelow(entry.first, high) || skip-- > 0) return true;
    if (room-- == 0) return false;
    add(entry);
    return true;
  };
  if (reversed) {
    std::all_of(set.order.rbegin(), set.order.rend(), add_if);
  } else {
    std::ranges::all_of(set.order, add_if);
  }
  return entries;
}

LuaRedis::Reply LuaRedis::Write(const Words& words) {
  const std::string& name = words[0];
  if (name == "SET") {  // key value PX ms NX, perhaps with GET
    if (const Value* const value = Find(words[1])) {
      if (words.back() != "GET") return Nil{};
      if (const auto* text = std::get_if<std::string>(&value->data)) return *text;
      return Failure{kWrongType};
    }
    Remember(words[1]);
    keys_.insert_or_assign(words[1], Value{words[2], now_us_ / 1000 + Integer(words[4])});
    if (words.back() == "GET") return Nil{};
    return Status{"OK"};
  }
  if (name == "PSETEX") {
    if (Integer(words[2]) <= 0) return Failure{"ERR invalid expire time in 'psetex' command"};
    Remember(words[1]);
    keys_.insert_or_assign(words[1], Value{words[3], now_us_ / 1000 + Integer(words[2])});
    return Status{"OK"};
  }
  if (name == "SETRANGE") {
    Value* const value = Find(words[1]);
    auto* const text = value ? std::get_if<std::string>(&value->data) : nullptr;
    if (value && !text) return Failure{kWrongType};
    Remember(words[1]);
    std::string changed = text ? *text : "";
    const auto at = static_cast<std::size_t>(Integer(words[2]));
    changed.resize(std::max(changed.size(), at + words[3].size()));
    changed.replace(at, words[3].size(), words[3]);
    const auto size = static_cast<std::int64_t>(changed.size());
    if (text) {
      *text = std::move(changed);
    } else {
      keys_.insert_or_assign(words[1], Value{std::move(changed), std::nullopt});
    }
    return size;
  }
  if (name == "PEXPIRE") {
    Value* const value = Find(words[1]);
    if (!value) return std::int64_t{0};
    Remember(words[1]);
    value->expires_ms = now_us_ / 1000 + Integer(words[2]);
    return std::int64_t{1};
  }
  if (name == "UNLINK") {
    if (!Find(words[1])) return std::int64_t{0};
    Remember(words[1]);
    keys_.erase(words[1]);
    return std::int64_t{1};
  }
  Reply problem = std::int64_t{0};
  SortedSet* set = FindSet(words[1], problem);
  if (std::holds_alternative<Failure>(problem)) return problem;
  if (name == "ZADD") {
    Remember(words[1]);
    if (!set) {
      set = &std::get<SortedSet>(
          keys_.insert_or_assign(words[1], Value{SortedSet{}, std::nullopt}).first->second.data);
    }
    for (std::size_t i = 2; i + 1 < words.size(); i += 2) {
      const double score = std::strtod(words[i].c_str(), nullptr);
      const std::string& member = words[i + 1];
      if (const auto old = set->scores.find(member); old != set->scores.end()) {
        set->order.erase({old->second, member});
      }
      set->scores[member] = score;
      set->order.emplace(score, member);
    }
    return std::int64_t{1};
  }
  if (!set) return std::int64_t{0};
  std::vector<std::pair<double, std::string>> gone;
  if (name == "ZREM") {
    for (std::size_t i = 2; i < words.size(); ++i) {
      const auto found = set->scores.find(words[i]);
      if (found != set->scores.end()) gone.emplace_back(found->second, words[i]);
    }
  } else if (name == "ZREMRANGEBYRANK") {
    const auto [first, last] = Ranks(Integer(words[2]), Integer(words[3]), set->order.size());
    auto entry = std::next(set->order.begin(), static_cast<std::ptrdiff_t>(first));
    for (std::size_t i = first; i < last; ++i) gone.push_back(*entry++);
  } else if (name == "ZREMRANGEBYSCORE") {
    for (const auto& entry : set->order) {
      if (IsAbove(entry.first, BoundOf(words[2])) && IsBelow(entry.first, BoundOf(words[3]))) {
        gone.push_back(entry);
      }
    }
  } else {
    return Failure{"ERR Unknown Redis command called from script"};
  }
  if (!gone.empty()) Remember(words[1]);
  for (const auto& entry : gone) {
    set->order.erase(entry);
    set->scores.erase(entry.second);
  }
  if (set->order.empty()) keys_.erase(words[1]);
  return static_cast<std::int64_t>(gone.size());
}

}  // namespace sluice::simulate
