// As much of a page as the dashboard's modules need to draw outside a browser: elements with attributes and children.

class FakeNode {
  constructor(tag) {
    Object.assign(this, { tag, attributes: {}, children: [], listeners: {} });
  }

  setAttribute(name, value) { this.attributes[name] = String(value); }

  append(...children) { this.children.push(...children); }

  addEventListener(name, heard) { this.listeners[name] = heard; }

  replaceChildren(...children) { this.children = children; }

  contains(other) { return this === other || this.all().includes(other); }

  querySelectorAll() { return []; }

  get id() { return this.attributes.id; }

  /** All elements below. */
  all() { return this.children.filter((one) => one instanceof FakeNode).flatMap((one) => [one, ...one.all()]); }

  /** Elements below whose tag, or one of whose classes, has this name. */
  find(name) { return this.all().filter(({ tag, attributes }) => tag === name || (attributes.class ?? "").split(" ").includes(name)); }

  get textContent() { return this.children.map((one) => (one instanceof FakeNode ? one.textContent : String(one))).join(""); }

  /** Open everything that is shown when somebody asks for it. */
  open() {
    for (const one of this.find("details")) {
      one.open = true;
      one.listeners.toggle();
    }
    return this;
  }
}

globalThis.Node = FakeNode;
globalThis.document = {
  activeElement: null, createElement: (tag) => new FakeNode(tag), createElementNS: (_, tag) => new FakeNode(tag), getElementById: () => null,
};

/** What a renderer made, in a place. */
export function placed(...made) {
  const place = new FakeNode("main");
  place.append(...made.flat(Infinity).filter((one) => one !== null && one !== undefined));
  return place;
}
