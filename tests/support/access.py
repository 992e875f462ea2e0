"""What keeps somebody from using a page, asked of a Chromium that shows it: names, contrast, room, motion, chatter."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.chromium import Chromium

CONTRAST = 4.5
"""Least ratio of the luminance of text to that of its ground (WCAG 2.2, 1.4.3)."""
LARGE_CONTRAST = 3.0
_ROLES = {"button", "link", "textbox", "searchbox", "combobox", "slider", "application", "spinbutton", "table", "image"}
"""Roles that need a name."""
_FOCUSABLE = "a[href], button, input, select, textarea, [tabindex]"
# Luminance of text against that of the nearest ground that is painted; text in drawings is not looked at.
_PALE = """
(() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = (colour) => numbers(colour).slice(0, 3).map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const { backgroundColor } = getComputedStyle(each);
      if (numbers(backgroundColor)[3] !== 0) return backgroundColor;
    }
    return "rgb(255, 255, 255)";
  };
  const pale = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    const text = texts.currentNode.data.trim();
    if (!text || element.closest("svg, canvas, script, noscript, option") || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const [low, high] = [luminance(style.color), luminance(ground(element))].sort((a, b) => a - b);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? LARGE : USUAL;
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < least) pale.push([text.slice(0, 40), style.color, ground(element), Math.round(ratio * 100) / 100]);
  }
  return pale;
})()
"""
_PAGE = """
(() => ({
  wide: document.documentElement.scrollWidth - innerWidth,
  moving: document.getAnimations().length,
  live: [...document.querySelectorAll("[aria-live], [role=status], [role=log]")].map((each) => each.id),
  said: document.getElementById("said").textContent.length,
  order: [...document.querySelectorAll("[tabindex]")].filter((each) => each.tabIndex > 0).length,
  headings: document.querySelectorAll("h1").length,
}))()
"""


def obstacles(page: Chromium) -> list[Any]:
    """Return what is wrong with a page as it is shown now; nothing where nothing is."""
    facts = page.evaluate(_PAGE)
    wrong: list[Any] = [f"{part}: {facts[part]}" for part in ("moving", "order") if facts[part]]
    wrong += [f"wider than the screen by {facts['wide']}"] if facts["wide"] > 0 else []
    wrong += [f"live regions: {facts['live']}"] if facts["live"] != ["said"] else []
    wrong += [f"says {facts['said']} letters"] if facts["said"] > 120 else []
    wrong += [f"{facts['headings']} headings of the page"] if facts["headings"] != 1 else []
    wrong += page.evaluate(_PALE.replace("LARGE", str(LARGE_CONTRAST)).replace("USUAL", str(CONTRAST)))
    for node in page.call("Accessibility.getFullAXTree")["nodes"]:
        role = node.get("role", {}).get("value")
        if not node["ignored"] and role in _ROLES and not node.get("name", {}).get("value", "").strip():
            wrong.append(f"a {role} without a name: {node.get('properties')}")
    return wrong


def reached_by_tab(page: Chromium) -> tuple[list[str], list[str]]:
    """Press Tab until the focus comes round.

    Returns
    -------
    tuple
        Controls in the order of the page, and in the order in which Tab reaches them; one whose focus cannot be seen
        is followed by ``unseen``.
    """
    number = f"[...document.querySelectorAll({json.dumps(_FOCUSABLE)})].filter((each) => each.tabIndex >= 0)"
    visible = f"{number}.filter((each) => each.getClientRects().length && !each.disabled)"
    page.evaluate(f"{visible}.forEach((each, place) => {{ each.dataset.place = `${{each.localName}} ${{place}}` }})")
    expected = page.evaluate(f"{visible}.map((each) => each.dataset.place)")
    page.evaluate("document.activeElement.blur(); document.body.tabIndex = -1; document.body.focus(); scrollTo(0, 0)")
    reached = []
    for _ in expected:
        page.press("Tab", 9)
        reached.append(
            page.evaluate(
                "(() => { const { dataset: { place }, localName } = document.activeElement;"
                " const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);"
                " const seen = outlineStyle !== 'none' && parseFloat(outlineWidth) >= 2;"
                " return `${place ?? localName}${seen ? '' : ' unseen'}`; })()"
            )
        )
    return expected, reached
