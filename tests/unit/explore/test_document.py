"""The page as one file has everything inside."""

import json
import re

from khot.explore.document import asset, single_file


def test_one_file_needs_nothing_else():
    page = single_file()
    assert asset("local.js") in page
    assert not re.search(r'<(?:script|link|img)[^>]*(?:src|href)="(?!data:)', page.partition("<script>")[0])
    assert "@" + "OPTIONS@" not in page


def test_one_file_offers_what_a_browser_computes():
    options = json.loads(re.search(r'id="options">(.*?)</script>', single_file())[1])
    assert options["methods"] == ["sigmoid", "laplace", "sparse"]
    assert options["local"] is True
