// The page of `report` from documents that another person may have filled.
#include "loader/cli/page.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace rlk::cli {
namespace {

using nlohmann::ordered_json;

ordered_json a_document() {
  return ordered_json::parse(R"({"schema": 1, "machine": "m", "made_unix": 0,
    "doctor": {"checks": [{"status": "problem", "subject": "s", "text": "t", "reason": "r", "hint": "h"}]},
    "list": {"host": {"version": "v", "abi": "a"}, "plugins": [{"id": "acme", "backend": "b", "version": "v", "abi": "a",
      "state": "partial", "broken": true, "reason_code": "c", "reason": "r", "hint": "h", "path": "p", "source": "s",
      "tier": "t", "tier_reason": "t", "devices": [{"name": "d", "arch": "a", "memory_bytes": 1073741824}],
      "ops": {"verified": 2, "partial": 1, "unsupported": 0, "quarantined": 0}}]},
    "scopes": [{"id": "acme", "tried": "everything", "units": [
      {"op": "o", "implementation": "i", "dtype": "bf16", "feature": "", "verdict": "verified", "worst_error_ratio": 0.25,
       "worst_error_ulp": 0.5, "reason_code": "", "reason": ""},
      {"op": "o", "implementation": "i", "dtype": "bf16", "feature": "f", "verdict": "verified", "worst_error_ratio": 0.125,
       "worst_error_ulp": 0.75, "reason_code": "", "reason": ""},
      {"op": "o", "implementation": "i", "dtype": "f32", "feature": "f", "verdict": "failed", "worst_error_ratio": 9.0,
       "worst_error_ulp": 9.0, "reason_code": "c", "reason": "r"},
      {"op": "o", "implementation": "i", "dtype": "f32", "feature": "", "verdict": "declined", "worst_error_ratio": null,
       "worst_error_ulp": null, "reason_code": "c", "reason": "r"}]}],
    "quarantine": {"entries": [{"plugin": "p", "op": "o", "implementation": "i", "dtype": "d", "reason_code": "c",
      "reason": "r", "since_unix": 0, "until_unix": 86400}]},
    "ops": {"ops": [{"name": "n", "family": "f", "summary": "s", "backward": "b",
      "dtypes": [{"name": "T", "choices": ["f32"]}]}]}})");
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

// Every text of the document becomes `text`; how many there were.
size_t fill(ordered_json* node, const std::string& text) {
  if (node->is_string()) {
    *node = text;
    return 1;
  }
  size_t filled = 0;
  if (node->is_structured())
    for (auto& child : *node) filled += fill(&child, text);
  return filled;
}

TEST(Page, ATextThatHoldsATagIsShownAndNeverATag) {
  const std::string clean = html_page(a_document());
  ordered_json document = a_document();
  EXPECT_GT(fill(&document, "\"'><script>alert(1)</script><img src=x onerror=y>&"), 50u);
  document["scopes"][0]["units"][0]["verdict"] = "failed";  // words that the page goes by
  const std::string page = html_page(document);
  EXPECT_EQ(count(page, "<script"), 0u);
  EXPECT_EQ(count(page, "<img"), 0u);
  EXPECT_GT(count(page, "&lt;script&gt;alert(1)&lt;/script&gt;"), 20u);
  EXPECT_GT(count(page, "&quot;&#39;&gt;"), 20u);
  EXPECT_EQ(count(page, "<section"), count(clean, "<section"));
}

TEST(Page, WhatIsNoTextIsShownEscapedAndLineBreaksStay) {
  EXPECT_EQ(html_text("a\x1b[31m\xe9 <b>\r\nc\xc3\xa9\n"), "a\\x1b[31m\\xe9 &lt;b&gt;\\x0d\nc\xc3\xa9\n");
  ordered_json document = a_document();
  document["doctor"]["checks"][0]["text"] = "is '\xff\x07'";
  const std::string page = html_page(document);
  EXPECT_EQ(count(page, "is &#39;\\xff\\x07&#39;"), 1u);
  EXPECT_EQ(count(page, "\x07"), 0u);
}

TEST(Page, AnOperatorOfWhichNothingIsVerifiedHasFailed) {
  ordered_json document = a_document();
  EXPECT_EQ(count(html_page(document), "2 verified, 1 partial"), 1u);
  for (auto& unit : document["scopes"][0]["units"])
    if (unit["verdict"] == "verified") unit["verdict"] = "declined";
  EXPECT_EQ(count(html_page(document), "2 verified, 1 failed<"), 1u);
}

TEST(Page, EveryTextOfTheDocumentsIsSomewhere) {
  for (const char* where : {"/machine", "/doctor/checks/0/reason", "/doctor/checks/0/hint", "/list/plugins/0/reason",
                            "/list/plugins/0/hint", "/list/plugins/0/devices/0/arch", "/scopes/0/units/2/reason",
                            "/quarantine/entries/0/reason", "/ops/ops/0/summary"}) {
    ordered_json document = a_document();
    document[ordered_json::json_pointer(where)] = "Wolpertinger";
    EXPECT_GE(count(html_page(document), "Wolpertinger"), 1u) << where;
  }
}

TEST(Page, VerdictsAreSummedByOperatorAndDtypeWithTheWorstErrorOfWhatIsVerified) {
  const std::string page = html_page(a_document());
  EXPECT_NE(page.find("acme: 2 verified, 1 failed, 1 declined"), std::string::npos);
  EXPECT_NE(page.find("2 verified<small>0.25 of the bound, 0.75 ulp</small>"), std::string::npos);
  EXPECT_NE(page.find("<td class=\"bad\">1 failed, 1 declined</td>"), std::string::npos);
  EXPECT_LT(page.find(">f32</th>"), page.find(">bf16</th>"));
  EXPECT_NE(page.find("1970-01-02 00:00 UTC"), std::string::npos);
}

TEST(Page, NothingComesFromElsewhere) {
  const std::string page = html_page(a_document());
  for (const char* word : {"http:", "https:", "src=", "url(", "@import", "<link"})
    EXPECT_EQ(count(page, word), 0u) << word;
  EXPECT_EQ(count(page, "href=\""), count(page, "href=\"#"));
  EXPECT_EQ(count(page, "default-src 'none'"), 1u);
}

}  // namespace
}  // namespace rlk::cli
