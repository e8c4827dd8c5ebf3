// SPDX-License-Identifier: Apache-2.0
// Runs the script of /docs on as much of a browser as it needs, and prints the text of the page.
//
// Usage: node docs_page.js PAGE OPENAPI ORIGIN
const fs = require('fs');
const [page, description, origin] = process.argv.slice(2);

class Element {
  constructor(name) { this.name = name; this.children = []; this.text = ''; }
  append(child) { this.children.push(child); }
  set textContent(text) { this.text = text; this.children = []; }
  print(lines) {
    if (this.text !== '') lines.push(this.text);
    for (const child of this.children) child.print(lines);
  }
}

const html = fs.readFileSync(page, 'utf8');
const ids = {origin: new Element('span'), operations: new Element('main')};
const script = html.match(/<script>([^]*)<\/script>/)[1];
new Function('document', 'location', 'fetch', script)(
  {getElementById: id => ids[id], createElement: name => new Element(name)},
  {origin},
  async path => ({json: async () => {
    if (path !== '/openapi.json') throw new Error(path);
    return JSON.parse(fs.readFileSync(description, 'utf8'));
  }}));
setImmediate(() => {
  const lines = [];
  ids.operations.print(lines);
  const intro = html.replace(/<span id="origin">[^<]*<\/span>/, ids.origin.text);
  process.stdout.write(intro.slice(0, intro.indexOf('<script>')) + lines.join('\n') + '\n');
});
